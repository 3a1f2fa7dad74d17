"""The scheduler: decides which offered workloads get quota."""
