"""
The input of `headgate plan -f`: users' manifests, completed as by an API server.

Namespaces, uids and creation times are filled in, Jobs that name a queue get their Workloads, and every mistake is one
line with file, document, object and field. Kinds without effect on scheduling (Deployments, ConfigMaps) are left out
and listed; an unknown kind of Kueue's group is a mistake.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.cli.checking import wrong_fields
from headgate.cli.manifests import Manifest
from headgate.core.api import job_kinds as kinds
from headgate.core.api.conversion import GROUP
from headgate.core.api.job_kinds import title
from headgate.core.api.names import QUEUE_LABEL
from headgate.core.kubernetes.conditions import rfc3339
from headgate.core.plan.jobs import workloads_of_jobs
from headgate.core.plan.reading import NAMESPACED, RESOURCE_OF, PlanInputError, in_order, read_object, shown_as
from headgate.events.configuration import Configuration
from headgate.events.facts import Fact, JobObserved
from headgate.events.ids import JobKey, JobRef, UnixMs

Json = dict[str, Any]

_VERSION_OF = {
    "": "v1",
    "node.k8s.io": "v1",
    "scheduling.k8s.io": "v1",
}
_LEFT_OUT_OF_KUEUE = frozenset({"MultiKueueCluster", "MultiKueueConfig"})
"""Kinds of Kueue's group without effect on a plan."""


class PlanInputs(msgspec.Struct, frozen=True):
    """The start of a plan. `mistakes` and `notes` are lines for people; with mistakes there are no facts."""

    facts: tuple[Fact, ...]
    mistakes: tuple[str, ...]
    notes: tuple[str, ...]


class _Reading:
    """One reading of some manifests."""

    def __init__(self, namespace: str, now_ms: UnixMs, configuration: Configuration) -> None:
        self._configuration = configuration
        self._namespace = namespace
        self._now = rfc3339(now_ms)
        self._number = 0
        self._seen: dict[tuple[str, str], str] = {}
        self._used: dict[str, None] = {}
        self.facts: list[tuple[str, Fact]] = []
        self.jobs: dict[JobKey, bytes] = {}
        self.mistakes: list[str] = []
        self.left_out: Counter[str] = Counter()
        self.notes: list[str] = []

    def read(self, manifest: Manifest) -> None:
        """One object: a fact, a note that it is left out, or a mistake."""
        group, _, version = manifest.api_version.rpartition("/")
        resource, kind = RESOURCE_OF.get((group, manifest.kind)), kinds.of_group_kind(group, manifest.kind)
        if resource is None or (kind is not None and not kinds.is_enabled(kind, self._configuration)):
            self._leave_out(manifest, group)
            return
        shown = f"{manifest.origin}: {manifest.kind} {manifest.name}"
        wanted = kind.version if kind is not None else _VERSION_OF.get(group)
        if wanted is not None and version != wanted:
            right = f"{group}/{wanted}".lstrip("/")
            self.mistakes.append(f"{shown}, field apiVersion: {manifest.api_version} is not served: write {right}")
            return
        body = self._completed(manifest, resource)
        name = shown_as(body)
        twin = self._seen.setdefault((resource, name), manifest.origin)
        if twin != manifest.origin:
            self.mistakes.append(f"{manifest.origin}: {name}: it is in {twin} already: leave one of them out")
            return
        self._add(manifest, resource, body)

    def _add(self, manifest: Manifest, resource: str, body: Json) -> None:
        shown = f"{manifest.origin}: {shown_as(body)}"
        try:
            wrong = wrong_fields(manifest.kind, body) if manifest.api_version.startswith(GROUP) else []
            if wrong:
                self.mistakes += [f"{shown}, field {each}" for each in wrong]
                return
            fact = read_object(body)
        except PlanInputError as error:
            self.mistakes.append(f"{manifest.origin}: {error}")
            return
        if resource in NAMESPACED:
            self._used[body["metadata"]["namespace"]] = None
        if fact is None:
            self._without_bearing(manifest, body)
            return
        if isinstance(fact, JobObserved):
            if not fact.spec.queue_name:
                self._without_bearing(manifest, body)
                return
            self.jobs[fact.job] = msgspec.json.encode(body)
        self.facts.append((resource, fact))

    def _completed(self, manifest: Manifest, resource: str) -> Json:
        """The object with what an API server fills in; objects that have no uid rank in the order of the manifests."""
        self._number += 1
        metadata: Json = {
            "uid": f"plan-{self._number:06d}",
            "creationTimestamp": self._now,
            **{key: value for key, value in manifest.body["metadata"].items() if value is not None},
        }
        if resource in NAMESPACED:
            metadata["namespace"] = metadata.get("namespace") or self._namespace
        else:
            metadata.pop("namespace", None)
        if resource == "namespaces":
            labels = metadata.get("labels")
            if labels is None or isinstance(labels, dict):
                metadata["labels"] = {**(labels or {}), "kubernetes.io/metadata.name": manifest.name}
        return {**manifest.body, "metadata": metadata}

    def _leave_out(self, manifest: Manifest, group: str) -> None:
        if group == GROUP and manifest.kind not in _LEFT_OUT_OF_KUEUE:
            served = ", ".join(sorted(kind for its_group, kind in RESOURCE_OF if its_group == GROUP))
            self.mistakes.append(
                f"{manifest.origin}: {manifest.kind} {manifest.name}, field kind: there is no such kind in {GROUP}: "
                f"it has {served}"
            )
            return
        labels = manifest.body["metadata"].get("labels")
        queue = labels.get(QUEUE_LABEL) if isinstance(labels, Mapping) else None
        if queue:
            run_here = ", ".join(f"{kind.api_version} {kind.kind}s" for kind in kinds.enabled(self._configuration))
            self.notes.append(
                f"{manifest.origin}: {manifest.kind} {manifest.name} names queue {queue}, but only {run_here} are "
                f"queued by Headgate: it is not in the plan"
            )
            return
        self.left_out[manifest.kind] += 1

    def _without_bearing(self, manifest: Manifest, body: Json) -> None:
        group = manifest.api_version.rpartition("/")[0]
        if kinds.of_group_kind(group, manifest.kind) is not None:
            self.notes.append(
                f"{manifest.origin}: {shown_as(body)} names no queue: it starts at once, beside all quota"
            )
        else:
            self.left_out[manifest.kind] += 1

    def origin_of_job(self, job: JobKey) -> str:
        """The file, and document, that a Job stands in."""
        return self._seen[kinds.kind_of(job).resource, f"{JobRef.parse(job).kind} {kinds.shown_name(job)}"]

    def missing_namespaces(self) -> list[str]:
        """The namespaces that objects are in and that are not among the manifests."""
        given = {name.removeprefix("Namespace ") for resource, name in self._seen if resource == "namespaces"}
        return [name for name in self._used if name not in given]


def read_inputs(
    manifests: list[Manifest], namespace: str, now_ms: UnixMs, configuration: Configuration | None = None
) -> PlanInputs:
    """
    The facts of manifests. `namespace` is for those that name none; `now_ms` for those without creation time.

    The configuration says which Workloads Jobs get.
    """
    reading = _Reading(namespace, now_ms, configuration or Configuration())
    for manifest in manifests:
        reading.read(manifest)
    missing = reading.missing_namespaces()
    for name in missing:
        namespace_object = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        labelled = {**namespace_object, "metadata": {"name": name, "labels": {"kubernetes.io/metadata.name": name}}}
        fact = read_object(labelled)
        assert fact is not None
        reading.facts.append(("namespaces", fact))
    notes = list(reading.notes)
    if reading.left_out:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(reading.left_out.items()))
        notes.append(f"left out, for scheduling has no use for them: {kinds}")
    if missing:
        notes.append(f"not among the manifests, taken to exist without labels: namespace {', '.join(missing)}")
    mistakes = list(reading.mistakes)
    facts = in_order(reading.facts)
    if not mistakes:
        workloads, wrong_jobs = workloads_of_jobs(facts, reading.jobs, now_ms, configuration)
        facts = (*facts, *workloads)
        mistakes += [f"{reading.origin_of_job(job)}: {title(job)}: {why}" for job, why in wrong_jobs.items()]
    return PlanInputs(() if mistakes else facts, tuple(mistakes), tuple(notes))
