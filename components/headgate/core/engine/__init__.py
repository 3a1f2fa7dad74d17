"""How a process runs its machine, without I/O: the driver, its appends, its calls, and its outputs to the shell."""
