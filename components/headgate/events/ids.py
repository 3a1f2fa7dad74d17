"""
Names and numbers that must not be mixed up.

Owned by the contract; all packages import them. All are plain strings and integers on the wire.
"""

from typing import NewType

import msgspec

Seq = NewType("Seq", int)
"""A stream sequence of the log: 1 for the first commit. 0 stands for the position before it."""

Epoch = NewType("Epoch", int)
"""A term of leadership of one producer. Grows by one with every new leader."""

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
"""
A job as one text: `<group>/<kind>/<namespace>/<name>`, for example `batch/Job/team-a/train`. See `JobRef`.

A job is the object that runs the pods of a Workload, of any API group and kind. The group of the core API is "".
"""

PodKey = NewType("PodKey", str)
"""`<namespace>/<name>` of a Pod."""

RequestKey = NewType("RequestKey", str)
"""`<namespace>/<name>` of a ProvisioningRequest."""

TemplateKey = NewType("TemplateKey", str)
"""`<namespace>/<name>` of a PodTemplate."""

Uid = NewType("Uid", str)
"""A Kubernetes object's `metadata.uid`."""

Shape = NewType("Shape", str)
"""A digest of everything in a workload that its quota evaluation depends on (Kueue's scheduling hash)."""

UnixMs = NewType("UnixMs", int)
"""Milliseconds since 1970-01-01T00:00:00Z."""


class JobRef(msgspec.Struct, frozen=True, order=True):
    """
    A reference to a job: two jobs of one namespace and name are different when their group or kind differs.

    None of the four parts can contain a slash, so `key` has exactly three and can be parsed again. Keys sort by group,
    then by kind, namespace and name.
    """

    group: str
    kind: str
    namespace: str
    name: str

    @property
    def key(self) -> JobKey:
        """The reference as text, as events and tables have it."""
        return JobKey(f"{self.group}/{self.kind}/{self.namespace}/{self.name}")

    @classmethod
    def parse(cls, key: str) -> "JobRef":
        """The reference that a text encodes. Raises ValueError when it does not have four parts."""
        parts = key.split("/")
        if len(parts) != 4:
            raise ValueError(f"{key!r} is no reference to a job: expected <group>/<kind>/<namespace>/<name>")
        return cls(*parts)


def split_key(key: str) -> tuple[str, str]:
    """`<namespace>/<name>` as its two parts; a cluster-scoped name has the namespace ""."""
    namespace, _, name = key.rpartition("/")
    return namespace, name
