"""The simulated world: log, cluster, clock, faults."""
