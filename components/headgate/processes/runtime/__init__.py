"""
Shared parts for running a machine: the host, leadership, pacing, settings, identity, HTTP, the API executor.

Used by: `headgate.processes.entry` and each process's `process.py`. May import: adapters, core, events, snapshots.
"""
