"""Headgate: a job-queueing scheduler for Kubernetes whose memory is one log of events."""

import importlib.metadata

__version__ = importlib.metadata.version("headgate")
