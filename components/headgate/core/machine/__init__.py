"""
The contract between a process and its machine.

Owns: stimuli, commands, commits, and the answers of the API server.
Called by: the machines, which implement it; the process host, plans and the simulated world, which drive it.
May import: fold, log, api, state, events.
"""
