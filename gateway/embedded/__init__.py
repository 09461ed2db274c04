"""Applications served inside a running event loop: the simulated inference server, and recordings played back."""
