"""
What every process needs to run its machine: the host, leadership, pacing, settings, identity, HTTP, the API executor.

Used by: `headgate.processes.entry` and each process's `process.py`.
May import: adapters, core, events, snapshots.
"""
