"""
The six processes: they run the machines of `headgate.machines` and do all I/O for them.

`entry` starts a process. Each process has a folder with its `process.py`; shared code is in `runtime`.

Owns: the start of a process, its settings and leadership, and all I/O for its machine.
Called by: the command line and the HTTP read side.
May import: adapters, machines, core, events.
"""
