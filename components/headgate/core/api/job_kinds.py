"""
The kinds of jobs that Headgate starts and stops, and how a job is addressed and named.

`JOB_KINDS` is the only list of them. All code that needs the path of a job, the key of the job in an owner reference,
or the display name of a job, uses this module. A job of any other group or kind is run elsewhere: a Workload that it
owns is scheduled, and its owner starts and stops it (`headgate.core.status.foreign_conditions`).
"""

from typing import Final

import msgspec

from headgate.events.ids import JobKey, JobRef
from headgate.events.objects import OwnerReference


class JobKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of job. `resource` is its name among the watched resources, which is unique where `plural` need not be."""

    group: str
    version: str
    kind: str
    plural: str
    resource: str

    @property
    def api_version(self) -> str:
        """The value of an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def gvk(self) -> str:
        """Group, version and kind as in Kueue's annotation `job-owner-gvk`: `batch/v1, Kind=Job`."""
        return f"{self.group}/{self.version}, Kind={self.kind}"

    def ref(self, namespace: str, name: str) -> JobRef:
        """The reference to a job of this kind."""
        return JobRef(self.group, self.kind, namespace, name)


BATCH_JOB: Final = JobKind(group="batch", version="v1", kind="Job", plural="jobs", resource="jobs")

JOB_KINDS: Final[tuple[JobKind, ...]] = (BATCH_JOB,)

_BY_GROUP_KIND: Final = {(each.group, each.kind): each for each in JOB_KINDS}
_BY_RESOURCE: Final = {each.resource: each for each in JOB_KINDS}
_BY_GVK: Final = {each.gvk: each for each in JOB_KINDS}


def of_key(key: JobKey) -> JobKind | None:
    """The kind of a job; None for one that Headgate does not run."""
    match key.split("/"):
        case [group, kind, _, _]:
            return _BY_GROUP_KIND.get((group, kind))
        case _:
            return None


def of_group_kind(group: str, kind: str) -> JobKind | None:
    """The kind of job of a group and kind; None when Headgate does not run it."""
    return _BY_GROUP_KIND.get((group, kind))


def of_owner(owner: OwnerReference | None) -> JobKind | None:
    """The kind of the job that an owner reference names; None when Headgate does not run it."""
    return _BY_GROUP_KIND.get((owner.group, owner.kind)) if owner is not None else None


def of_resource(resource: str) -> JobKind | None:
    """The kind of job that a watched resource holds; None when it holds no jobs."""
    return _BY_RESOURCE.get(resource)


def of_gvk(gvk: str) -> JobKind | None:
    """The kind of job that an annotation `job-owner-gvk` names; None when Headgate does not run it."""
    return _BY_GVK.get(gvk)


def owner_key(namespace: str, owner: OwnerReference) -> JobKey:
    """The key of the object that an owner reference in a namespace names, regardless of what runs it."""
    return JobRef(owner.group, owner.kind, namespace, owner.name).key


def kind_of(key: JobKey) -> JobKind:
    """
    The kind of a job.

    Raises KeyError for one that Headgate does not run.
    """
    kind = of_key(key)
    if kind is None:
        raise KeyError(f"{key}: this version does not run jobs of this kind, but {', '.join(map(str, _BY_GROUP_KIND))}")
    return kind


def path_of(key: JobKey, subresource: str = "") -> str:
    """
    The path of a job, or of its subresource.

    Raises KeyError for a job that Headgate does not run.
    """
    ref, kind = JobRef.parse(key), kind_of(key)
    root = f"/apis/{kind.group}" if kind.group else "/api"
    path = f"{root}/{kind.version}/namespaces/{ref.namespace}/{kind.plural}/{ref.name}"
    return f"{path}/{subresource}" if subresource else path


# --- display names ----------------------------------------------------------------------------------------------------


def kind_name(key: str) -> str:
    """
    The display name of a job's kind: `Job`, or `Job.batch.volcano.sh`.

    The group is left out where the kind alone is unambiguous: no other group has a kind of that name that Headgate
    runs.
    """
    match key.split("/"):
        case [group, kind, _, _]:
            groups = [each.group for each in JOB_KINDS if each.kind == kind]
            return kind if groups == [group] or not group else f"{kind}.{group}"
        case _:
            return "Job"


def shown_name(key: str) -> str:
    """The display name of a job, with namespace: `team-a/train`."""
    return "/".join(key.split("/")[-2:])


def title(key: str) -> str:
    """The display name of a job, with kind: `Job team-a/train`."""
    return f"{kind_name(key)} {shown_name(key)}"
