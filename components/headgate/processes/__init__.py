"""
The six processes: they run the machines of `headgate.machines` and do all I/O for them.

`entry` starts a process. Each process has a folder with its `process.py`; shared code is in `runtime`.

Used by: the command line and the HTTP read side. May import: adapters, machines, core, events.
"""
