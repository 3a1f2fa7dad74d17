"""
From API objects to facts: the relevant parts of a watched object, in the types of the contract.

`read` takes the JSON of one object of one resource and returns its key, its uid and the fact of its existence and
content; no fact when the object is irrelevant to Headgate (a pod that neither holds capacity nor waits for Headgate; a
job without a queue, unless the configuration manages those). Only what a decision can depend on is decoded; labels and
annotations are reduced to those of Kueue and to those that the configuration names (`headgate.core.reading.rules`),
except where selectors need all of them (nodes, namespaces). Of Kueue's kinds v1beta2 and v1beta1 are read.

Each kind is read by a module of its own in `headgate.core.api` (`workloads`, `queues`, ...), each kind of job by its
integration (`headgate.core.jobs`); what they share is in `headgate.core.api.watched_objects`. This module lists them,
and converts their exceptions into one error.

Whether a fact is news is decided elsewhere: `headgate.machines.informer_bridge.diff` compares it with the state. The
informer bridge calls both; nothing here reads the state.

An object that does not decode, or has an invalid quantity or time, raises UnreadableObjectError. The bridge reports it
and treats the object as absent: one bad object must not stop the cell.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from headgate.core.api.job_kinds import OF_TRAIN_JOBS, TRAIN_JOB, JobKind, enabled, known, of_resource, resources_of
from headgate.core.api.names import QUEUE_LABEL
from headgate.core.api.namespaces import read_namespace
from headgate.core.api.nodes_and_pods import read_node, read_pod
from headgate.core.api.pod_defaults import read_limit_range, read_priority_class, read_runtime_class
from headgate.core.api.provisioning import read_pod_template, read_provisioning_config, read_provisioning_request
from headgate.core.api.queues import (
    read_admission_check,
    read_cluster_queue,
    read_cohort,
    read_flavor,
    read_local_queue,
    read_topology,
    read_workload_priority_class,
)
from headgate.core.api.watched_objects import METADATA_DECODER, Metadata, WrongFieldError, key_in
from headgate.core.api.workloads import read_workload
from headgate.core.jobs.registry import INTEGRATIONS
from headgate.core.reading.rules import ReadingRules
from headgate.events.configuration import Configuration
from headgate.events.facts import Fact, JobObserved

_BEFORE_JOBS = (
    "namespaces",
    "nodes",
    "resourceflavors",
    "topologies",
    "admissionchecks",
    "cohorts",
    "clusterqueues",
    "localqueues",
    "workloadpriorityclasses",
    "priorityclasses",
    "limitranges",
    "runtimeclasses",
    "provisioningrequestconfigs",
)
_AFTER_JOBS = ("workloads", "provisioningrequests", "podtemplates", "pods")


def watched(configuration: Configuration) -> tuple[str, ...]:
    """
    The resources that a cell with this configuration watches, in the order of their facts in a commit.

    Referenced objects come first, so owners come before what they own.
    """
    return (*_BEFORE_JOBS, *_of_kinds(enabled(configuration)), *_AFTER_JOBS)


def every_resource() -> tuple[str, ...]:
    """What a cell watches that runs every kind of jobs that is known, in the same order."""
    return (*_BEFORE_JOBS, *_of_kinds(known()), *_AFTER_JOBS)


def _of_kinds(kinds: Sequence[JobKind]) -> tuple[str, ...]:
    """What is watched of these kinds of jobs. Runtimes are no facts: the bridge reads TrainJobs together with them."""
    runtimes = OF_TRAIN_JOBS if TRAIN_JOB in kinds else ()
    return (*runtimes, *resources_of(kinds))


RESOURCES = watched(Configuration())
"""The watched resources (plural names) of a cell that runs batch/v1 Jobs alone."""

READING = 8
"""
The version of the rules by which `read` makes facts. Raise it whenever the same object gives another fact than before.

The log then has facts by the old rules of objects that may never change again: a bridge with another number lists
everything and compares, instead of resuming its watches.
"""

CLUSTER_NAMESPACE = "kube-system"
"""The namespace that is as old as its cluster and cannot be deleted: it identifies the cluster."""


_USUAL = ReadingRules()


class UnreadableObjectError(Exception):
    """
    Raised when an API object does not have the form of its kind.

    The object counts as absent until it changes; correct the named field.
    """

    def __init__(self, *, resource: str, name: str, field: str, why: str) -> None:
        where = f", field {field}" if field else ""
        super().__init__(
            f"{resource} {name or '(without a name)'}{where}: {why}. It is treated as absent until it changes; "
            f"correct it with `kubectl edit {resource} {name}`."
        )
        self.resource = resource
        self.name = name
        self.field = field
        self.why = why


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One object as it was read: `key` is that of `key_of`. Without a fact it is irrelevant to Headgate."""

    resource: str
    key: str
    uid: str
    fact: Fact | None


def key_of(resource: str, raw: bytes) -> str:
    """
    The key of an object: its name, `<namespace>/<name>`, or the reference to a job.

    Raises UnreadableObjectError when it has no readable metadata.
    """
    try:
        metadata = METADATA_DECODER.decode(raw).metadata
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise unreadable(resource, raw, error) from error
    if not metadata.name:
        raise UnreadableObjectError(resource=resource, name="", field="metadata.name", why="it is missing")
    return _key_in(resource, metadata)


def version_of(raw: bytes) -> int:
    """The resource version of an object; 0 when it is no number, or cannot be read."""
    try:
        version = METADATA_DECODER.decode(raw).metadata.resource_version
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return 0
    return int(version) if version.isdecimal() else 0


def cluster_id_of(raw: bytes) -> str:
    """
    The identity of the cluster, from the JSON of its namespace CLUSTER_NAMESPACE.

    It is the namespace's uid and the time of its creation; the latter because test clusters may generate the same uids
    on every start. Raises UnreadableObjectError when it has no readable metadata.
    """
    try:
        metadata = METADATA_DECODER.decode(raw).metadata
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise unreadable("namespaces", raw, error) from error
    return f"{metadata.uid} {metadata.creation_timestamp or ''}".strip()


def read(resource: str, raw: bytes, rules: ReadingRules = _USUAL) -> Seen:
    """
    One object of a resource (its plural name) as a fact, by the rules of a configuration.

    Raises UnreadableObjectError when the object is not of the form of its kind; KeyError for a resource that is not
    watched.
    """
    try:
        metadata, fact = _reader_of(resource, rules)(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, WrongFieldError) as error:
        raise unreadable(resource, raw, error) from error
    if not metadata.name:
        raise UnreadableObjectError(resource=resource, name="", field="metadata.name", why="it is missing")
    return Seen(resource=resource, key=_key_in(resource, metadata), uid=metadata.uid, fact=fact)


def _reader_of(resource: str, rules: ReadingRules) -> "_Reader":
    kind = of_resource(resource)
    if kind is not None:
        return partial(_read_job, kind, rules.unnamed)
    return _READERS.get(resource) or partial(_KEEPERS[resource], keys=rules.keys_of(resource))


def _key_in(resource: str, metadata: Metadata) -> str:
    kind = of_resource(resource)
    return key_in(metadata) if kind is None else kind.key(metadata.namespace, metadata.name)


def unreadable(resource: str, raw: bytes, error: Exception) -> UnreadableObjectError:
    """What is wrong with an object of a resource, from the error of its decoder or reader."""
    try:
        name = key_in(METADATA_DECODER.decode(raw).metadata)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        name = ""
    if isinstance(error, WrongFieldError):
        return UnreadableObjectError(resource=resource, name=name, field=error.field, why=str(error))
    match = re.fullmatch(r"(?P<why>.*?) - at `\$\.?(?P<field>[^`]*)`", str(error))
    if match is None:
        return UnreadableObjectError(resource=resource, name=name, field="", why=str(error))
    return UnreadableObjectError(resource=resource, name=name, field=match["field"], why=match["why"])


def _read_job(kind: JobKind, unnamed: bool, raw: bytes) -> tuple[Metadata, Fact | None]:
    if not unnamed and _QUEUE_LABEL not in raw:
        return METADATA_DECODER.decode(raw).metadata, None
    metadata, job = INTEGRATIONS[kind].read(raw)
    if job is None or not (job.queue_name or unnamed):
        return metadata, None
    return metadata, JobObserved(job=kind.key(metadata.namespace, metadata.name), spec=job)


_QUEUE_LABEL = QUEUE_LABEL.encode()


_Reader = Callable[[bytes], tuple[Metadata, Fact | None]]

_READERS: dict[str, _Reader] = {
    "namespaces": read_namespace,
    "nodes": read_node,
    "resourceflavors": read_flavor,
    "topologies": read_topology,
    "admissionchecks": read_admission_check,
    "workloadpriorityclasses": read_workload_priority_class,
    "priorityclasses": read_priority_class,
    "limitranges": read_limit_range,
    "runtimeclasses": read_runtime_class,
    "provisioningrequestconfigs": read_provisioning_config,
    "provisioningrequests": read_provisioning_request,
    "podtemplates": read_pod_template,
}

_KEEPERS: dict[str, Callable[..., tuple[Metadata, Fact | None]]] = {
    "cohorts": read_cohort,
    "clusterqueues": read_cluster_queue,
    "localqueues": read_local_queue,
    "workloads": read_workload,
    "pods": read_pod,
}
"""The readers that keep labels and annotations by the rules, as `keys`."""
assert {*_READERS, *_KEEPERS} == {*_BEFORE_JOBS, *_AFTER_JOBS}
