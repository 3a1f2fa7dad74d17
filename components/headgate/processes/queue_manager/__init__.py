"""The queue manager: where each pending workload stands, what it waits for, and which come next."""
