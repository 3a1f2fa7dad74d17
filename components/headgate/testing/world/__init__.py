"""
The simulated world: the machines, the log and a Kubernetes cluster under one virtual clock and one seed.

Owns: the virtual clock, the order of deliveries, crashes, and the delivery of appends and calls.
Called by: tests, the fuzzer, `headgate simulate`.
May import: cluster, processes, adapters, machines, core, events.
"""
