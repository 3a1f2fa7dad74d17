"""
What a running pod or job becomes: its Workload, the flavors it is admitted with, its labels; or why it cannot be.

An object is admitted to the ClusterQueue of its LocalQueue whatever quota that has left, for it runs already: each
resource it requests gets the first flavor of the resource group that covers it (Kueue's cmd/importer/pod). Refused is
what could not stay admitted, or what nobody has said where it belongs; skipped is what needs no Workload.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from headgate.core.api import job_kinds
from headgate.core.api.admission_checks import checks_for
from headgate.core.api.job_kinds import POD, JobKind
from headgate.core.api.managed_pods import ENDED
from headgate.core.api.names import ADMISSION_GATE, MANAGED, POD_GROUP, QUEUE_LABEL
from headgate.core.importing.rules import Rules, rule_for
from headgate.core.kubernetes.conditions import ADMITTED, QUOTA_RESERVED
from headgate.core.kubernetes.quantities import QuantityError, canonical
from headgate.core.kubernetes.selectors import matches_labels
from headgate.core.quota.activeness import cluster_queue_active
from headgate.core.reading.decoding import UnreadableObjectError, read
from headgate.core.state.tables import PodRecord, State, Workload
from headgate.core.workload.job_workload import NoSuchPriorityClassError, pod_priority_class, workload_of
from headgate.core.workload.pod_jobs import observed
from headgate.core.workload.pod_requests import Limits, PodSetRequests, limits_of, pod_set_requests
from headgate.events.facts import JobObserved, PodObserved, WorkloadObserved
from headgate.events.ids import JobKey, LocalQueueKey, PodKey, Uid, UnixMs, WorkloadKey
from headgate.events.objects import ClusterQueueSpec, Job

Json = dict[str, Any]

IMPORTED: Final = "Imported"
"""The reason of the conditions, as Kueue's importer writes it."""


class _Owner(msgspec.Struct, frozen=True):
    api_version: str = msgspec.field(default="", name="apiVersion")
    kind: str = ""
    name: str = ""
    controller: bool = False


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: tuple[_Owner, ...] | None = None
    deletion_timestamp: str | None = None


class _Gate(msgspec.Struct, frozen=True):
    name: str = ""


class _PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    priority_class_name: str | None = None
    scheduling_gates: tuple[_Gate, ...] | None = None


class _Phase(msgspec.Struct, frozen=True):
    phase: str = ""


class _Head(msgspec.Struct, frozen=True):
    metadata: _Meta


class _PodHead(msgspec.Struct, frozen=True):
    spec: _PodSpec = _PodSpec()
    status: _Phase = _Phase()


class Skipped(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An object that needs no Workload, or has one."""

    object: str
    why: str


class Refused(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """An object that cannot be imported as it is. `why` names the field and the remedy."""

    object: str
    why: str


class Importable(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """
    What is to be written for an object.

    `workload` is the object to create, `status` what is applied to it, `labels` what the object itself gets. `usage`
    are the amounts by flavor and resource. With `is_admitted` a former run has come as far as the labels.
    """

    object: str
    kind: JobKind
    namespace: str
    name: str
    queue: str
    cluster_queue: str
    workload: Json
    status: Json
    labels: dict[str, str]
    usage: dict[tuple[str, str], int]
    is_admitted: bool = False


Verdict = Importable | Refused | Skipped


class _RefusedError(Exception):
    """Raised within a check."""


class _SkippedError(Exception):
    """Raised within a check."""


class Importer:
    """
    Tells what becomes of objects. `state` has the queues, classes and Workloads of the cluster, and the configuration.

    `kinds` are those that are imported; pods of their jobs count with the job. `now` is the time of the conditions, RFC
    3339.
    """

    def __init__(
        self, state: State, rules: Rules, kinds: tuple[JobKind, ...], add_labels: Mapping[str, str], now: str
    ) -> None:
        self._state = state
        self._rules = rules
        self._kinds = kinds
        self._add_labels = dict(add_labels)
        self._now = now
        self._limits: dict[str, Limits] = {}

    def check(self, kind: JobKind, raw: bytes) -> Verdict:
        """What becomes of the object of a kind, given as JSON. Never raises for what is in the object."""
        meta = msgspec.json.decode(raw, type=_Head).metadata
        shown = f"{kind.kind} {meta.namespace}/{meta.name}"
        try:
            return self._check(kind, meta, raw, shown)
        except _SkippedError as why:
            return Skipped(object=shown, why=str(why))
        except _RefusedError as why:
            return Refused(object=shown, why=str(why))

    def _check(self, kind: JobKind, meta: _Meta, raw: bytes, shown: str) -> Importable:
        self._require_free(kind, meta)
        pod = msgspec.json.decode(raw, type=_PodHead) if kind is POD else None
        if pod is not None:
            _require_running(pod, meta)
        # The job as it would be read with the labels that it is going to have.
        wanted = {**self._add_labels, QUEUE_LABEL: "-"} | ({MANAGED: "true"} if kind is POD else {})
        key, job = self._read(kind, meta, _labelled(raw, wanted))
        _require_no_end(job)
        priority_class = (pod.spec.priority_class_name or "") if pod is not None else pod_priority_class(job)
        queue = self._queue_of(meta, priority_class)
        cluster_queue, spec = self._cluster_queue_of(meta.namespace, queue)
        _require_no_other_queue(meta, queue)
        labels = {**wanted, QUEUE_LABEL: queue}
        relabelled = _labelled(raw, labels)
        key, job = self._read(kind, meta, relabelled)
        workload = self._workload(key, job, relabelled)
        workload["metadata"]["labels"] = {**workload["metadata"].get("labels", {}), **self._add_labels}
        requests = self._requests(meta.namespace, workload)
        status, usage = self._admission(cluster_queue, spec, requests)
        there = self._state.workloads.get(WorkloadKey(f"{meta.namespace}/{workload['metadata']['name']}"))
        is_labelled = (meta.labels or {}).items() >= labels.items()
        if there is not None and there.admission is not None and is_labelled:
            raise _SkippedError(f"it is imported: its Workload is {workload['metadata']['name']}")
        return Importable(
            object=shown,
            kind=kind,
            namespace=meta.namespace,
            name=meta.name,
            queue=queue,
            cluster_queue=cluster_queue,
            workload=workload,
            status=status,
            labels=labels,
            usage=usage,
            is_admitted=there is not None and there.admission is not None,
        )

    def _require_free(self, kind: JobKind, meta: _Meta) -> None:
        """What is being deleted frees its quota itself, and the parts of a job count with it."""
        if meta.deletion_timestamp is not None:
            raise _SkippedError("it is being deleted")
        for owner in meta.owner_references or ():
            group = owner.api_version.rpartition("/")[0]
            parent = job_kinds.of_group_kind(group, owner.kind)
            if owner.controller and parent is not None and parent in self._kinds and parent is not kind:
                raise _SkippedError(f"it counts with {owner.kind} {meta.namespace}/{owner.name}")

    def _queue_of(self, meta: _Meta, priority_class: str) -> str:
        rule = rule_for(self._rules, priority_class, meta.labels or {})
        if rule is None and QUEUE_LABEL in (meta.labels or {}):
            raise _SkippedError("no rule matches, and it names a queue already")
        if rule is None:
            raise _RefusedError("no rule matches its labels and PriorityClass: add one, or one with skip: true")
        if rule.skip:
            raise _SkippedError("its rule says skip")
        return rule.to_local_queue

    def _cluster_queue_of(self, namespace: str, queue: str) -> tuple[str, ClusterQueueSpec]:
        local = self._state.local_queues.get(LocalQueueKey(f"{namespace}/{queue}"))
        if local is None:
            raise _RefusedError(f"there is no LocalQueue {namespace}/{queue}: create it, or correct the rule")
        if local.spec.stop_policy != "None":
            raise _RefusedError(f"LocalQueue {namespace}/{queue}, field spec.stopPolicy: it is stopped: resume it")
        name = local.spec.cluster_queue
        record = self._state.cluster_queues.get(name)
        if record is None:
            raise _RefusedError(
                f"LocalQueue {namespace}/{queue}, field spec.clusterQueue: there is no {name}: create it"
            )
        active = cluster_queue_active(self._state, name)
        if not active.active:
            raise _RefusedError(f"ClusterQueue {name} is inactive ({active.reason}): {active.message.rstrip('.')}")
        if not record.spec.resource_groups:
            raise _RefusedError(f"ClusterQueue {name}, field spec.resourceGroups: it has none: add quota")
        there = self._state.namespaces.get(namespace)
        if there is None or not matches_labels(record.spec.namespace_selector, there.labels):
            raise _RefusedError(
                f"ClusterQueue {name}, field spec.namespaceSelector: it does not select namespace {namespace}"
            )
        return name, record.spec

    def _read(self, kind: JobKind, meta: _Meta, raw: bytes) -> tuple[JobKey, Job]:
        """The job of an object that has the labels already."""
        key = kind.key(meta.namespace, meta.name)
        try:
            fact = read("pods" if kind is POD else kind.resource, raw).fact
        except UnreadableObjectError as error:
            field = f"field {error.field}: " if error.field else ""
            raise _RefusedError(f"{field}{error.why}: correct it") from error
        if isinstance(fact, PodObserved):
            members = {PodKey(f"{meta.namespace}/{meta.name}"): PodRecord(pod=fact.spec)}
            job = observed(key, members, None, UnixMs(0))
            if job is not None:
                return key, job
        if isinstance(fact, JobObserved):
            return key, fact.spec
        raise _SkippedError("it does not matter to queues")

    def _workload(self, key: JobKey, job: Job, raw: bytes) -> Json:
        try:
            return workload_of(self._state, key, job, raw)
        except NoSuchPriorityClassError as error:
            raise _RefusedError(f"priority class: {error}: create it") from error

    def _requests(self, namespace: str, workload: Json) -> tuple[PodSetRequests, ...]:
        metadata = {**workload["metadata"], "uid": "-", "creationTimestamp": self._now}
        fact = read("workloads", msgspec.json.encode({**workload, "metadata": metadata})).fact
        assert isinstance(fact, WorkloadObserved)
        made = Workload(key=fact.workload, uid=Uid("-"), created_ms=UnixMs(0), spec=fact.spec)
        if namespace not in self._limits:
            self._limits[namespace] = limits_of(self._state, namespace)
        try:
            return pod_set_requests(
                made, self._limits[namespace], self._state.runtime_classes, self._state.configuration
            )
        except QuantityError as error:
            raise _RefusedError(f"field resources.requests of its containers: {error}") from error

    def _admission(
        self, cluster_queue: str, spec: ClusterQueueSpec, requests: tuple[PodSetRequests, ...]
    ) -> tuple[Json, dict[tuple[str, str], int]]:
        """The status of the Workload, and what it uses."""
        first = first_flavors(spec)
        assignments: list[Json] = []
        usage: dict[tuple[str, str], int] = {}
        for pod_set in requests:
            total = pod_set.total()
            flavors: dict[str, str] = {}
            for resource in sorted(name for name, value in total.items() if value):
                flavors[resource] = self._flavor(first, resource, cluster_queue)
                used = (flavors[resource], resource)
                usage[used] = usage.get(used, 0) + total[resource]
            amounts = {name: canonical(name, value) for name, value in sorted(total.items())}
            assignments.append(
                {"name": pod_set.name, "flavors": flavors, "resourceUsage": amounts, "count": pod_set.count}
            )
        message = f"Imported into ClusterQueue {cluster_queue}"
        status: Json = {
            "admission": {"clusterQueue": cluster_queue, "podSetAssignments": assignments},
            "conditions": [_condition(QUOTA_RESERVED, message, self._now), _condition(ADMITTED, message, self._now)],
        }
        checks = checks_for(spec, {flavor for flavor, _ in usage}, {}, self._now)
        if checks:
            # It runs already: no check can hold it back any more.
            status["admissionChecks"] = [
                {"name": each.name, "state": "Ready", "message": message, "lastTransitionTime": self._now}
                for each in checks
            ]
        return status, usage

    def _flavor(self, first: Mapping[str, str], resource: str, cluster_queue: str) -> str:
        flavor = first.get(resource)
        where = f"ClusterQueue {cluster_queue}, field spec.resourceGroups"
        if flavor is None:
            raise _RefusedError(f"{where}: no flavor for resource {resource}: add it to coveredResources")
        topology = self._state.flavors[flavor].spec.topology_name
        if topology is not None:
            raise _RefusedError(
                f"{where}: the first flavor for {resource}, {flavor}, is of Topology {topology}, and what runs has no "
                "topology assignment: map it to a queue without one"
            )
        return flavor


def first_flavors(spec: ClusterQueueSpec) -> dict[str, str]:
    """By resource, the first flavor of the resource group that covers it."""
    return {
        resource: group.flavors[0].name
        for group in reversed(spec.resource_groups)
        if group.flavors
        for resource in group.covered_resources
    }


def _require_no_other_queue(meta: _Meta, queue: str) -> None:
    named = (meta.labels or {}).get(QUEUE_LABEL, "")
    if named not in ("", queue):
        raise _RefusedError(
            f"field metadata.labels[{QUEUE_LABEL}]: it names the LocalQueue {named}, and its rule {queue}: correct the "
            "rule or the label"
        )


def _require_running(pod: _PodHead, meta: _Meta) -> None:
    if pod.status.phase in ENDED:
        raise _SkippedError("it has ended")
    gates = pod.spec.scheduling_gates or ()
    if any(each.name == ADMISSION_GATE for each in gates):
        raise _SkippedError("it waits for its admission already")
    labels, annotations = meta.labels or {}, meta.annotations or {}
    if labels.get(POD_GROUP) or annotations.get(POD_GROUP):
        raise _RefusedError(
            f"field metadata.labels[{POD_GROUP}]: it is of a pod group, which cannot be imported: remove the label"
        )


def _require_no_end(job: Job) -> None:
    if job.finished is not None:
        raise _SkippedError("it has ended")
    if job.suspended:
        raise _SkippedError("it is suspended: label it with its queue, and it is queued")


def _labelled(raw: bytes, labels: Mapping[str, str]) -> bytes:
    """The object with further labels."""
    found: Json = msgspec.json.decode(raw)
    metadata = found["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
    return msgspec.json.encode(found)


def _condition(kind: str, message: str, now: str) -> Json:
    return {"type": kind, "status": "True", "reason": IMPORTED, "message": message, "lastTransitionTime": now}
