"""
What runs a cell without a Kubernetes cluster, for tests, simulations and `headgate up`.

Owns: a simulated cluster, clock, log and faults; recorded traces; the fuzzer; a real control plane.
Called by: tests; `headgate run cluster`, `headgate simulate` and `headgate plan --scenarios`, which load it by name.
May import: cli, web, processes, adapters, machines, core, events.
"""
