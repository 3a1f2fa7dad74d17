"""
The six machines: each decides for one process, and is pure. `headgate.processes` runs them.

Used by: the process of the same name, plans, verification, the simulated world. May import: core, events; never each
other.
"""
