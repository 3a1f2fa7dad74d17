"""
The integrations of StatefulSets and LeaderWorkerSets (Kueue's pkg/controller/jobs/statefulset, leaderworkerset).

Both are sets of pod groups: a StatefulSet is one group, a LeaderWorkerSet has one for each of its replicas. Such an
object has no field that suspends it. Its pods wait behind their gate, and each of its groups has a Workload, which is
made from the object, before and without its pods (`headgate.core.workload.served`).
"""

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from headgate.core.api.job_kinds import LEADER_WORKER_SET, STATEFUL_SET
from headgate.core.api.names import APPS_POD_INDEX, LWS_NAME, LWS_WORKER_INDEX, POD_PARENT
from headgate.core.jobs.integration import Json, RunByPods
from headgate.core.jobs.suspendable import JobStatus, PodSetSource, Suspendable, at, number_at
from headgate.events.objects import Job

MAIN: Final = "main"
LEADER: Final = "leader"
WORKER: Final = "worker"
"""The pod sets of a group: leader and worker, or main where there is no leader."""

GROUPS_MAX: Final = 1_000_000
"""The most groups of a LeaderWorkerSet; admission refuses more (Kueue's maxLeaderWorkerSetReplicas)."""

_NO_SURGE: Final = (None, 0, "0", "0%")
_LWS_PREFIX: Final = "leaderworkerset.sigs.k8s.io"


class _Set(RunByPods, Suspendable):
    """What both kinds have in common."""

    def status(self, obj: Json, sources: Sequence[PodSetSource]) -> JobStatus:
        """See `Suspendable`. What runs of it is said by its pods."""
        return JobStatus()

    def groups(self, obj: Json) -> int:
        """How many pod groups an object has."""
        raise NotImplementedError

    def is_on_hold(self, obj: Json) -> bool:
        """Whether an object is to have no pods, and keeps its Workload."""
        return False

    def completed(self, job: Job, obj: Json) -> Job:
        """See `Suspendable`."""
        return replace(job, suspended=True, groups=self.groups(obj), on_hold=self.is_on_hold(obj), prebuilt="")


class StatefulSet(_Set):
    """
    The integration of StatefulSets.

    One of no replicas is on hold: its Workload stays, without quota, and is queued again when it is scaled up. The
    number of its pods cannot change otherwise while it is managed.
    """

    kind = STATEFUL_SET

    def sources(self, obj: Json) -> list[PodSetSource]:
        """See `Suspendable`."""
        spec = obj.get("spec") or {}
        template: Json = spec.setdefault("template", {})
        pod_template = {"metadata": {"annotations": at(template, "metadata", "annotations") or {}}}
        seen = {**pod_template, "spec": template.get("spec") or {}}
        count = number_at(spec, 1, "replicas")
        return [
            PodSetSource(
                name=MAIN,
                count=count,
                template=template,
                seen=seen,
                at="spec.template",
                pod_index_label=APPS_POD_INDEX,
            )
        ]

    def pod_sets(self, job: Job, raw: bytes) -> list[Json]:
        """See `Integration`. As in Kueue the template has no metadata."""
        return [{**each, "template": {"spec": each["template"]["spec"]}} for each in super().pod_sets(job, raw)]

    def is_skipped(self, obj: Json) -> bool:
        """Whether its pods are those of another kind that makes StatefulSets."""
        parent = at(obj, "spec", "template", "metadata", "annotations", POD_PARENT)
        return parent is not None and parent != self.kind.framework

    def groups(self, obj: Json) -> int:
        """See `_Set`."""
        return 1

    def is_on_hold(self, obj: Json) -> bool:
        """See `_Set`."""
        return number_at(obj, 1, "spec", "replicas") == 0


class LeaderWorkerSet(_Set):
    """
    The integration of LeaderWorkerSets.

    While a rolling update adds groups beyond its replicas (`maxSurge`), these count too.
    """

    kind = LEADER_WORKER_SET

    def sources(self, obj: Json) -> list[PodSetSource]:
        """See `Suspendable`."""
        of = (obj.get("spec") or {}).get("leaderWorkerTemplate") or {}
        size = number_at(of, 1, "size")
        found: list[PodSetSource] = []
        leader, worker = of.get("leaderTemplate"), of.get("workerTemplate") or {}
        if leader is not None:
            path = "spec.leaderWorkerTemplate.leaderTemplate"
            found.append(PodSetSource(name=LEADER, count=1, template=leader, seen=_given(leader), at=path))
        found.append(
            PodSetSource(
                name=MAIN if leader is None else WORKER,
                count=size if leader is None else size - 1,
                template=worker,
                seen=_given(worker),
                at="spec.leaderWorkerTemplate.workerTemplate",
                pod_index_label=LWS_WORKER_INDEX,
            )
        )
        return found

    def groups(self, obj: Json) -> int:
        """See `_Set`."""
        wanted, there = number_at(obj, 1, "spec", "replicas"), number_at(obj, 0, "status", "replicas")
        surge = at(obj, "spec", "rolloutStrategy", "rollingUpdateConfiguration", "maxSurge")
        is_surging = surge not in _NO_SURGE and number_at(obj, 0, "status", "updatedReplicas") < wanted
        return max(0, min(max(wanted, there) if is_surging else wanted, GROUPS_MAX))


def _given(template: Json) -> Json:
    """A template without the labels and annotations of its operator."""
    metadata = template.get("metadata") or {}
    cleaned = dict(metadata)
    for field in ("labels", "annotations"):
        kept = {
            key: value
            for key, value in (metadata.get(field) or {}).items()
            if not key.startswith(_LWS_PREFIX) or key == LWS_NAME
        }
        cleaned.pop(field, None)
        if kept:
            cleaned[field] = kept
    return {**template, "metadata": cleaned}
