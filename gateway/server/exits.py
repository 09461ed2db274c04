"""How a process ends."""

EXIT_DONE = 0
EXIT_FAILED = 1
