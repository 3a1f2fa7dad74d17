"""
The informer bridge as a process: it lists and watches the API server, and carries the machine's calls out.

Used by: `headgate.processes.entry`.
May import: its machine, runtime, adapters, core, events.
"""
