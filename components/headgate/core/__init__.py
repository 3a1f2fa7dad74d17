"""The pure core: state and its fold, queues, quota, flavors, cycles. No clock, no randomness, no I/O."""
