"""
The informer bridge as a process.

Owns: the lists and watches of the API server, and the calls that its machine decides.
Called by: `headgate.processes.entry`.
May import: runtime, adapters, machines.informer_bridge, core, events.
"""
