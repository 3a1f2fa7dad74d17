"""
Shared parts for running a machine.

Owns: the host, leadership, pacing, settings, identity, HTTP, the API executor, calls of scheduler extenders.
Called by: `headgate.processes.entry`, each process's `process.py`, recovery, the command line, the read side.
May import: snapshots, adapters, core, events.
"""
