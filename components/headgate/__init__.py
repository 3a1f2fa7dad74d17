"""Headgate: a job-queueing scheduler for Kubernetes whose memory is one log of events."""
