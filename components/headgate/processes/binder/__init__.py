"""
The binder as a process.

Owns: the writes to the API server that its machine decides, and the calls of extenders that bind pods.
Called by: `headgate.processes.entry`.
May import: runtime, adapters, machines.binder, core, events.
"""
