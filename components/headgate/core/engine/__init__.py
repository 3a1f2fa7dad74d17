"""
How a process runs its machine, without I/O.

Owns: the driver of a machine: its appends, its calls, the work queue, the budget, and its outputs to the shell.
Called by: the host of a process, plans, the simulated world, the machines that write to the API server.
May import: machine, fold, log, state, events.
"""
