"""
The cluster as `headgate import` sees it: the state of its queues, and the objects that may be imported.

The state is folded from the same facts that the informer bridge would record (`headgate.core.plan.log`).
"""

from collections.abc import AsyncIterator, Sequence

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.resources import RESOURCES, WORKLOADS, Resource, of_kind
from headgate.cli.output import FAILED, CliError
from headgate.core.api.job_kinds import JobKind
from headgate.core.plan.log import PlanLog
from headgate.core.reading.decoding import UnreadableObjectError, read
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.configuration import Configuration
from headgate.events.facts import ConfigurationObserved, Fact
from headgate.events.ids import UnixMs

_READ = (
    "namespaces",
    "resourceflavors",
    "topologies",
    "admissionchecks",
    "cohorts",
    "clusterqueues",
    "workloadpriorityclasses",
    "priorityclasses",
    "runtimeclasses",
    "localqueues",
    "limitranges",
    "workloads",
)


async def state_of(client: KubeClient, namespaces: Sequence[str], configuration: Configuration) -> State:
    """
    The queues, classes and Workloads of a cluster, folded.

    Workloads of other namespaces count in ClusterQueues too, so they are read of all. Raises CliError where Kueue's
    kinds are not served, KubernetesError.
    """
    facts: list[Fact] = []
    for name in _READ:
        resource = RESOURCES[name]
        for namespace in namespaces if resource.namespaced and resource is not WORKLOADS else [None]:
            facts += await _facts(client, resource, namespace)
    log = PlanLog(UnixMs(0))
    log.append(Producer.INFORMER_BRIDGE, [ConfigurationObserved(configuration=configuration), *facts])
    return log.state


async def _facts(client: KubeClient, resource: Resource, namespace: str | None) -> list[Fact]:
    found: list[Fact] = []
    try:
        async for page in client.pages(resource, namespace):
            for raw in page.items:
                try:
                    fact = read(resource.name, bytes(raw)).fact
                except UnreadableObjectError:
                    continue  # as the bridge does: it counts as absent, and what names it is refused
                if fact is not None:
                    found.append(fact)
    except ApiError as error:
        if error.is_unserved:
            what = f"{resource.plural}.{resource.group}"
            raise CliError(f"the cluster does not serve {what}: run `headgate crds install` first", FAILED) from error
        raise
    return found


async def objects_of(
    client: KubeClient, namespaces: Sequence[str], kinds: Sequence[JobKind]
) -> AsyncIterator[tuple[JobKind, bytes]]:
    """Every pod and job of these kinds, with its kind and version. Raises KubernetesError."""
    for namespace in dict.fromkeys(namespaces):
        for kind in kinds:
            try:
                async for page in client.pages(of_kind(kind), namespace):
                    for raw in page.items:
                        yield kind, bytes(raw)
            except ApiError as error:
                if not error.is_unserved:  # its definition is not installed: there is none
                    raise
