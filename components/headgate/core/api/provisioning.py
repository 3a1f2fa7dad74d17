"""ProvisioningRequestConfigs, ProvisioningRequests and the PodTemplates that were made for them, as facts."""

from headgate.core.api.names import KUEUE, MANAGED
from headgate.core.api.watched_objects import METADATA_DECODER, Metadata, WatchedObject, controller_of, decode, key_in
from headgate.events.facts import Fact, PodTemplateObserved, ProvisioningConfigObserved, ProvisioningRequestObserved
from headgate.events.ids import RequestKey, TemplateKey, WorkloadKey
from headgate.events.objects import (
    ApiBranch,
    ApiObject,
    Condition,
    ProvisioningConfigSpec,
    ProvisioningRequest,
    ProvisioningRetries,
    ProvisioningUpdates,
    RequestedPods,
    RequestTemplate,
)


class _ConfigSpec(ApiBranch, frozen=True):
    """As `ProvisioningConfigSpec`; a client may write null for what the API server has a default for."""

    provisioning_class_name: str = ""
    parameters: dict[str, str] | None = None
    managed_resources: tuple[str, ...] | None = None
    retry_strategy: ProvisioningRetries | None = None
    pod_set_updates: ProvisioningUpdates | None = None
    pod_set_merge_policy: str | None = None


class _Config(WatchedObject, frozen=True):
    spec: _ConfigSpec = _ConfigSpec()


class _TemplateRef(ApiObject, frozen=True):
    name: str = ""


class _RequestPodSet(ApiBranch, frozen=True):
    pod_template_ref: _TemplateRef = _TemplateRef()
    count: int = 0


class _RequestSpec(ApiBranch, frozen=True):
    provisioning_class_name: str = ""
    parameters: dict[str, str] | None = None
    pod_sets: tuple[_RequestPodSet, ...] = ()


class _RequestStatus(ApiBranch, frozen=True):
    conditions: tuple[Condition, ...] | None = None
    provisioning_class_details: dict[str, str] | None = None


class _Request(WatchedObject, frozen=True):
    spec: _RequestSpec = _RequestSpec()
    status: _RequestStatus = _RequestStatus()


def read_provisioning_config(raw: bytes) -> tuple[Metadata, Fact | None]:
    """The metadata and the fact of one ProvisioningRequestConfig."""
    seen = decode(_Config, raw)
    given = seen.spec
    spec = ProvisioningConfigSpec(
        provisioning_class_name=given.provisioning_class_name,
        parameters=given.parameters or {},
        managed_resources=given.managed_resources or (),
        retry_strategy=given.retry_strategy or ProvisioningRetries(),
        pod_set_updates=given.pod_set_updates,
        pod_set_merge_policy=given.pod_set_merge_policy,
    )
    return seen.metadata, ProvisioningConfigObserved(name=seen.metadata.name, spec=spec)


def read_provisioning_request(raw: bytes) -> tuple[Metadata, Fact | None]:
    """The metadata and the fact of one ProvisioningRequest; none when no Workload owns it."""
    seen = decode(_Request, raw)
    meta, spec, status = seen.metadata, seen.spec, seen.status
    owners = (
        each for each in meta.owner_references or () if each.kind == "Workload" and each.api_version.startswith(KUEUE)
    )
    workload = next(owners, None)
    if workload is None:
        return meta, None
    return meta, ProvisioningRequestObserved(
        request=RequestKey(key_in(meta)),
        owner=WorkloadKey(f"{meta.namespace}/{workload.name}"),
        spec=ProvisioningRequest(
            uid=meta.uid,
            owner_uid=workload.uid,
            class_name=spec.provisioning_class_name,
            parameters=spec.parameters or {},
            pod_sets=tuple(
                RequestedPods(template=each.pod_template_ref.name, count=each.count) for each in spec.pod_sets
            ),
            conditions=status.conditions or (),
            details=status.provisioning_class_details or {},
            deleting=meta.deletion_timestamp is not None,
        ),
    )


def read_pod_template(raw: bytes) -> tuple[Metadata, Fact | None]:
    """The metadata and the fact of one PodTemplate; none of one without Kueue's label `managed`."""
    meta = METADATA_DECODER.decode(raw).metadata
    if (meta.labels or {}).get(MANAGED) != "true":
        return meta, None
    spec = RequestTemplate(uid=meta.uid, owner=controller_of(meta), deleting=meta.deletion_timestamp is not None)
    return meta, PodTemplateObserved(template=TemplateKey(key_in(meta)), spec=spec)
