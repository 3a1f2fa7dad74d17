"""
The six processes: what runs the machines of `headgate.machines`, and everything else that does I/O for them.

`entry` starts a process. Each process has a folder with its `process.py`; what they share is in `runtime`.

Used by: the command line and the HTTP read side.
May import: adapters, machines, core, events.
"""
