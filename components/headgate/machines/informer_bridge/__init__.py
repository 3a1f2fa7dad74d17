"""
The informer bridge's machine: what the API server shows becomes facts; Jobs with a queue get a Workload.

Owns: which observations become facts, and the Workloads of Jobs with a queue.
Called by: the process `informer_bridge`, the simulated world, the fuzzer.
May import: core, events.
"""
