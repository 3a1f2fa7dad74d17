"""
The simulated world: the machines, the log and a Kubernetes cluster under one virtual clock and one seed.

Used by: tests, the fuzzer, `headgate simulate`.
May import: everything.
"""
