"""
The six machines: each decides for one process, and is pure. `headgate.processes` runs them.

Owns: the decisions of each process, one package for each.
Called by: the process of the same name, the simulated world; some modules also by plans and commands.
May import: core, events. A machine never imports another machine.
"""
