"""
Names and numbers that must not be mixed up.

Owned by the contract; everybody imports them. All are plain strings and integers on the wire.
"""

from typing import NewType

Seq = NewType("Seq", int)
"""A stream sequence of the log: 1 for the first commit. 0 stands for the position before it."""

Epoch = NewType("Epoch", int)
"""A term of leadership of one producer. Grows by one with every new leader, for ever."""

CommitId = NewType("CommitId", str)
"""
`<producer>-<epoch>-<number>`: the producer's number-th commit under that epoch. Unique, and the same when a commit is
retried.
"""

WorkloadKey = NewType("WorkloadKey", str)
"""`<namespace>/<name>` of a Workload."""

LocalQueueKey = NewType("LocalQueueKey", str)
"""`<namespace>/<name>` of a LocalQueue."""

JobKey = NewType("JobKey", str)
"""`<namespace>/<name>` of a batch/v1 Job."""

PodKey = NewType("PodKey", str)
"""`<namespace>/<name>` of a Pod."""

Uid = NewType("Uid", str)
"""A Kubernetes object's `metadata.uid`."""

Shape = NewType("Shape", str)
"""A digest of everything in a workload that its quota evaluation depends on (Kueue's scheduling hash)."""

UnixMs = NewType("UnixMs", int)
"""Milliseconds since 1970-01-01T00:00:00Z."""


def split_key(key: str) -> tuple[str, str]:
    """`<namespace>/<name>` as its two parts; a cluster-scoped name has the namespace ""."""
    namespace, _, name = key.rpartition("/")
    return namespace, name
