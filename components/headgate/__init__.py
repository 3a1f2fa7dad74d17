"""
Headgate: a job-queueing scheduler for Kubernetes whose memory is one log of events.

Owns: the version of the package; everything else is in its packages.
Called by: users, by the command `headgate`; tests and tools.
May import: nothing.
"""

import importlib.metadata

__version__ = importlib.metadata.version("headgate")
