"""
The informer bridge as a process: lists and watches the API server, and makes the machine's calls.

Used by: `headgate.processes.entry`. May import: its machine, runtime, adapters, core, events.
"""
