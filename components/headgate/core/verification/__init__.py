"""
Verification: the recorded decisions of every process are repeated, or justified, from the log itself.

Owns: the replay of a log by the machines, and the comparison of recorded decisions with repeated ones.
Called by: `headgate replay`, and the check of the queue manager (`headgate.machines.queue_manager.again`).
May import: placement, machine, fold, status, topology, workload, log, api, state, config, events.
"""
