"""
The integrations of plain pods and of pod groups (Kueue's pkg/controller/jobs/pod).

They have no field that suspends them and no template to change: the ungater ungates, stops and finalizes their pods one
by one (`headgate.core.workload.pod_actions`). The facts about them as jobs are derived from those about their pods
(`headgate.core.workload.pod_jobs`).
"""

from typing import Any, Final

import msgspec

from headgate.core.api.job_kinds import POD, POD_GROUP
from headgate.core.api.names import POD_GROUP_INDEX
from headgate.core.api.watched_objects import Metadata
from headgate.core.jobs.integration import Json, Patch, RunByPods
from headgate.core.jobs.pod_templates import topology_request
from headgate.events.objects import Job, PodSet

POD_SET: Final = "main"
"""The pod set of a plain pod."""


class RolePods(msgspec.Struct, frozen=True):
    """Pods of a group that are alike: how many there are, and one of them."""

    role: str
    count: int
    pod: msgspec.Raw


class GroupPods(msgspec.Struct, frozen=True):
    """
    What a Workload of a pod group is made from: its roles, and the name and uid of each of its pods.

    The labels and annotations are those that its pods have in common and the Workload gets too.
    """

    roles: tuple[RolePods, ...]
    pods: tuple[tuple[str, str], ...]
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Meta(msgspec.Struct, frozen=True):
    annotations: dict[str, str] | None = None


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()
    spec: dict[str, Any] = {}


class _Pods(RunByPods):
    """What plain pods and pod groups have in common."""

    def read(self, raw: bytes) -> tuple[Metadata, Job | None]:
        """See `Integration`. They have no resource of their own. Raises TypeError."""
        raise TypeError(f"{self.kind.kind}: the pods of this kind are read one by one")

    def observed_pod_sets(self, job: Job) -> tuple[PodSet, ...]:
        """See `Integration`. Only of pods that name their Workload: of others it never changes."""
        return job.pod_sets

    def pod_counts(self, job: Job) -> dict[str, int]:
        """See `Integration`."""
        return dict.fromkeys(job.reclaimable, 1) if job.reclaimable else {}

    def reclaimable(self, job: Job) -> dict[str, int]:
        """See `Integration`."""
        return job.reclaimable

    def what_matters(self, job: Job) -> Job:
        """See `Integration`. The bridge derives no more than matters."""
        return job

    def reopen(self, job_uid: str) -> Patch | None:
        """See `Integration`."""
        return None

    def carries_injection(self, job: Job) -> bool:
        """See `Integration`. What was injected into a pod goes with it."""
        return False


class PlainPod(_Pods):
    """The integration of plain pods."""

    kind = POD

    def pod_sets(self, job: Job, raw: bytes) -> list[Json]:
        """See `Integration`. `raw` is the pod."""
        return [_pod_set(POD_SET, 1, raw)]


class PodGroup(_Pods):
    """The integration of pod groups."""

    kind = POD_GROUP

    def pod_sets(self, job: Job, raw: bytes) -> list[Json]:
        """See `Integration`. `raw` is a GroupPods."""
        return [_pod_set(each.role, each.count, each.pod) for each in group_pods(raw).roles]


def group_pods(raw: bytes) -> GroupPods:
    """What a Workload of a pod group is made from."""
    return msgspec.json.decode(raw, type=GroupPods)


def _pod_set(name: str, count: int, raw: bytes | msgspec.Raw) -> Json:
    pod = msgspec.json.decode(raw, type=_Pod)
    made: Json = {"name": name, "count": count, "template": {"metadata": {}, "spec": pod.spec}}
    request = topology_request(pod.metadata.annotations or {}, pod_index_label=POD_GROUP_INDEX)
    return made if request is None else made | {"topologyRequest": request}
