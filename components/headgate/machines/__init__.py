"""
The six machines: each decides for one process, and is pure. What runs them is in `headgate.processes`.

Used by: the process of the same name, plans, verification, the simulated world.
May import: core, events; never each other.
"""
