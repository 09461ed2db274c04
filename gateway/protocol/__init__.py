"""The sans-IO core: what a response is, without sockets, clocks or frameworks."""
