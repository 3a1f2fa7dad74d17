"""
Effects: the outcomes of decisions in the cluster.

Each is appended by the process that carried the decision out, after the API server (or the broker, for snapshots) has
given its final answer: applied, or rejected with its reason. Operating errors are not effects; they are retried.
"""

from typing import Literal

from headgate.events.base import EventBase
from headgate.events.extenders import ExtenderAnswered
from headgate.events.ids import JobKey, PodKey, RequestKey, Seq, Uid, WorkloadKey
from headgate.events.upcasting import upcast_job


class LeaderElected(EventBase, frozen=True, tag="leader.elected"):
    """
    Appended by every process as the first event of each of its terms; it fences the former leader's appends.

    The commit's producer and epoch identify the process and term; `holder` is the instance, e.g. a pod name. `rules` is
    the number of the rules that it decides by: it increases with each release in which the process decides differently.
    `version` is the version of Headgate that runs; "" in logs of versions that did not record it.
    """

    holder: str
    rules: int = 0
    version: str = ""


class StatusApplied(EventBase, frozen=True, tag="workload.status_applied"):
    """
    Appended by the binder when the API server has accepted a Workload's status.

    `digest` identifies the status that was written, so that after a restart nothing is written twice.
    `finalizer_removed`: the finalizer of the finished Workload was removed too, for which no fact follows. `version` is
    the resource version of the object after the write: a different status at a later version has another writer.
    """

    workload: WorkloadKey
    uid: Uid
    digest: str
    finalizer_removed: bool = False
    version: int = 0


class StatusRejected(EventBase, frozen=True, tag="workload.status_rejected"):
    """Appended by the binder when the API server refused a Workload's status permanently, with its code and message."""

    workload: WorkloadKey
    uid: Uid
    digest: str
    code: int
    reason: str
    message: str


class PodBound(EventBase, frozen=True, tag="pod.bound"):
    """Appended by the binder when the API server has bound a pod to the node that was chosen for it."""

    pod: PodKey
    uid: Uid
    node: str


class PodBindRejected(EventBase, frozen=True, tag="pod.bind_rejected"):
    """
    Appended by the binder when a binding was refused; the pod, if it is still pending, is placed anew.

    The API server has refused it, with an HTTP status as `code`; or the `extender` that was to bind the pod, named by
    its `urlPrefix`, with code 0.
    """

    pod: PodKey
    uid: Uid
    node: str
    code: int
    reason: str
    message: str
    extender: str = ""


class PodPreempted(EventBase, frozen=True, tag="pod.preempted"):
    """Appended by the binder when the API server has accepted that a victim of the pod `by` is deleted."""

    pod: PodKey
    uid: Uid
    by: PodKey


class PodPreemptionRejected(EventBase, frozen=True, tag="pod.preemption_rejected"):
    """Appended by the binder when the API server refused to evict or delete a victim of the pod `by`."""

    pod: PodKey
    uid: Uid
    by: PodKey
    code: int
    reason: str
    message: str


class PodWriteRejected(EventBase, frozen=True, tag="pod.write_rejected"):
    """Appended by the binder when the API server refused a write of `pod.unschedulable` to an object."""

    pod: PodKey
    uid: Uid
    kind: str
    name: str
    code: int
    reason: str
    message: str


class PodRemoved(EventBase, frozen=True, tag="pod.removed"):
    """Appended by the ungater when it has deleted a pod that was too many in its pod group."""

    pod: PodKey
    uid: Uid


class PodFailed(EventBase, frozen=True, tag="pod.failed"):
    """Appended by the ungater when it has failed a pod that waited for a node that will not take it."""

    pod: PodKey
    uid: Uid
    message: str


class ProvisioningCreated(EventBase, frozen=True, tag="provisioningrequest.created"):
    """Appended by the binder when the API server has a ProvisioningRequest that was requested for a workload."""

    workload: WorkloadKey
    uid: Uid
    request: RequestKey


class ProvisioningRejected(EventBase, frozen=True, tag="provisioningrequest.rejected"):
    """
    Appended by the binder when the API server has refused a ProvisioningRequest or a PodTemplate of it, and why.

    `message` names the object, and has the API server's message. The binder tries again with backoff; the same refusal
    is not recorded twice.
    """

    workload: WorkloadKey
    uid: Uid
    request: RequestKey
    code: int
    reason: str
    message: str


class ProvisioningRemoved(EventBase, frozen=True, tag="provisioningrequest.removed"):
    """Appended by the binder when it has deleted a ProvisioningRequest that was withdrawn, or found that it is gone."""

    workload: WorkloadKey
    uid: Uid
    request: RequestKey


class WorkloadCreated(EventBase, frozen=True, tag="workload.created"):
    """Appended by the informer bridge when it has created the Workload of a job that names a queue."""

    workload: WorkloadKey
    job: JobKey
    job_uid: Uid

    def __post_init__(self) -> None:
        """Read references of earlier versions."""
        upcast_job(self)


class WorkloadCreateRejected(EventBase, frozen=True, tag="workload.create_rejected"):
    """Appended by the informer bridge when the API server refused the Workload of a job, with its code and message."""

    workload: WorkloadKey
    job: JobKey
    job_uid: Uid
    code: int
    reason: str
    message: str

    def __post_init__(self) -> None:
        """Read references of earlier versions."""
        upcast_job(self)


class VariantChanged(EventBase, frozen=True, tag="variant.changed"):
    """
    Appended by the informer bridge when the API server has created, deleted or switched a variant of a parent workload.

    `variant` and `uid` are the variant's, `flavor` is the one that it may use. `why` is why it was switched, in Kueue's
    words; "" for one that was created or deleted, which follow from the flavors of the ClusterQueue.
    """

    variant: WorkloadKey
    uid: Uid
    parent: WorkloadKey
    parent_uid: Uid
    flavor: str
    change: Literal["created", "deleted", "activated", "deactivated"]
    why: str = ""


class JobStarted(EventBase, frozen=True, tag="job.started"):
    """Appended by the ungater when it has resumed an admitted workload's job on its flavors."""

    job: JobKey
    job_uid: Uid
    workload: WorkloadKey
    workload_uid: Uid

    def __post_init__(self) -> None:
        """Read references of earlier versions."""
        upcast_job(self)


class JobStartRejected(EventBase, frozen=True, tag="job.start_rejected"):
    """Appended by the ungater when the API server refused to resume a job, with its code and message."""

    job: JobKey
    job_uid: Uid
    workload: WorkloadKey
    workload_uid: Uid
    code: int
    reason: str
    message: str

    def __post_init__(self) -> None:
        """Read references of earlier versions."""
        upcast_job(self)


class JobStopped(EventBase, frozen=True, tag="job.stopped"):
    """Appended by the ungater when it has suspended a job whose workload is evicted, or that started unadmitted."""

    job: JobKey
    job_uid: Uid
    workload: WorkloadKey
    reason: str

    def __post_init__(self) -> None:
        """Read references of earlier versions."""
        upcast_job(self)


class JobStopRejected(EventBase, frozen=True, tag="job.stop_rejected"):
    """Appended by the ungater when the API server refused to suspend a job, with its code and message."""

    job: JobKey
    job_uid: Uid
    workload: WorkloadKey
    code: int
    reason: str
    message: str

    def __post_init__(self) -> None:
        """Read references of earlier versions."""
        upcast_job(self)


class SnapshotTaken(EventBase, frozen=True, tag="snapshot.taken"):
    """
    Appended by the snapshotter when a snapshot is stored.

    `position` is the last sequence folded into it, `state_hash` the hash of the canonical state there, `log_hash` the
    chained hash of every commit up to there, `size_bytes` the size of the encoded state.
    """

    position: Seq
    state_hash: str
    log_hash: str
    name: str
    size_bytes: int


class DivergenceFound(EventBase, frozen=True, tag="divergence.found"):
    """Appended by the snapshotter when folding the log again gave another state than its live one."""

    position: Seq
    live_hash: str
    refolded_hash: str


class ObjectQuarantined(EventBase, frozen=True, tag="object.quarantined"):
    """
    Appended by every process when its machine has failed over an object, which is in quarantine from here on.

    `kind` is the object's kind, and "Job" for jobs of every kind; `name` is its name, `<namespace>/<name>`, or the
    reference to the job. `error` and `where` are the error and its line, `version` the version of Headgate. A
    quarantined Workload is not touched by any process and keeps its quota; for another kind only the work that failed
    is left undone.
    """

    kind: str
    name: str
    error: str
    where: str
    version: str
    uid: Uid = Uid("")

    def __post_init__(self) -> None:
        """Read references of earlier versions."""
        if self.kind == "Job":
            upcast_job(self, "name")


class ObjectReleased(EventBase, frozen=True, tag="object.released"):
    """
    Appended by the informer bridge when a retry of an object in quarantine is requested.

    Also by every process when it starts, for objects that an earlier version of it has failed over. The object's record
    is restored, and its newest fact folded. `request` identifies the request.
    """

    kind: str
    name: str
    why: str
    uid: Uid = Uid("")
    request: str = ""

    def __post_init__(self) -> None:
        """Read references of earlier versions."""
        if self.kind == "Job":
            upcast_job(self, "name")


PlacementEffect = PodBound | PodBindRejected | PodPreempted | PodPreemptionRejected
"""What became of a pod's binding, or of a pod that had to go for another one."""

Effect = (
    LeaderElected
    | StatusApplied
    | StatusRejected
    | PlacementEffect
    | PodWriteRejected
    | PodRemoved
    | PodFailed
    | ExtenderAnswered
    | ProvisioningCreated
    | ProvisioningRejected
    | ProvisioningRemoved
    | WorkloadCreated
    | WorkloadCreateRejected
    | VariantChanged
    | JobStarted
    | JobStartRejected
    | JobStopped
    | JobStopRejected
    | SnapshotTaken
    | DivergenceFound
    | ObjectQuarantined
    | ObjectReleased
)
