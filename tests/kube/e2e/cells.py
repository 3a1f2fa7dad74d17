"""What a test of a deployed Headgate works with: the cluster's objects, and cells that come and go."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec
from tests.support.brokers import Broker
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import KubeClient, PatchType
from headgate.adapters.kubernetes.crds.install import install
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.resources import RESOURCES, Resource
from headgate.core.api.names import SCHEDULER_NAME
from headgate.core.state.tables import State
from headgate.processes.entry import NAMES, Runner, processes
from headgate.processes.runtime.settings import KubernetesSettings, PlacementSettings, Settings
from headgate.testing.control_plane import ControlPlane
from headgate.web.routes import add_routes

MANIFESTS: Final = Path(__file__).parents[3] / "deploy" / "kubernetes" / "base"
NAMESPACE: Final = "headgate-system"
KUEUE: Final = "kueue.x-k8s.io/v1beta2"
READ_SIDE: Final = "snapshotter"
Json = dict[str, Any]


PLACING: Final = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": SCHEDULER_NAME}],
}
"""There is no kube-scheduler: Headgate places the pods that name it, and nobody all others."""


class Cell:
    """A running Headgate. `state` is what the queue manager has folded."""

    def __init__(self) -> None:
        self.runners: dict[str, Runner] = {}

    @property
    def state(self) -> State | None:
        return self.runners["queue-manager"].view.state

    def holds(self, condition: Callable[[State], object]) -> bool:
        """Whether a condition holds of the folded state, once there is one."""
        return self.state is not None and bool(condition(self.state))


class Deployment:
    """The control plane, and the objects on it."""

    def __init__(
        self, plane: ControlPlane, client: KubeClient, broker: Broker, kubeconfigs: Mapping[str, Path]
    ) -> None:
        self.plane = plane
        self.client = client
        self.broker = broker
        self.kubeconfigs = kubeconfigs
        self.placing = PlacementSettings(configuration=str(plane.folder / "kube-scheduler-config.yaml"))
        Path(self.placing.configuration).write_bytes(msgspec.json.encode(PLACING))
        self._made = 0

    def fresh(self, word: str) -> str:
        """A name that nothing else here has."""
        self._made += 1
        return f"{word}-{self._made}"

    async def apply(self, *objects: Json) -> None:
        """Apply manifests, as kubectl apply --server-side does."""
        for each in objects:
            resource = next(found for found in RESOURCES.values() if found.kind == each["kind"])
            meta = each["metadata"]
            await self.client.patch(
                resource,
                meta["name"],
                each,
                meta.get("namespace"),
                patch_type=PatchType.APPLY,
                field_manager="test",
                force=True,
            )

    async def merge(self, resource: Resource, name: str, namespace: str | None, patch: Json, **more: Any) -> None:
        """Merge-patch one object."""
        await self.client.patch(resource, name, patch, namespace, **more)

    async def all(self, resource: Resource, namespace: str | None = None) -> list[Json]:
        """Every object of a resource."""
        found = await self.client.list(resource, namespace)
        return [msgspec.json.decode(each) for each in found.items]

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Json:
        """One object."""
        found: Json = msgspec.json.decode(await self.client.get(resource, name, namespace))
        return found

    @asynccontextmanager
    async def cell(self, name: str, **sections: Any) -> AsyncIterator[Cell]:
        """
        All six processes, each with its own token and its own NATS user, for as long as the block runs.

        The log is that of `name`.
        """
        running = Cell()
        await self.broker.admit(name)
        async with anyio.create_task_group() as tasks:
            for process in NAMES:
                access = self.kubeconfigs.get(process)
                settings = Settings(
                    cell=name,
                    holder="test",
                    nats=self.broker.settings(name, process),
                    kubernetes=KubernetesSettings(kubeconfig=str(access) if access else None),
                    placement=self.placing,
                    **sections,
                )
                runner = Runner(processes()[process], settings, routes=add_routes if process == READ_SIDE else None)
                running.runners[process] = runner
                tasks.start_soon(runner.run)
            await until(
                lambda: all(each.status.report().ready for each in running.runners.values()),
                lambda: {process: each.status.report() for process, each in running.runners.items()},
            )
            yield running
            for runner in running.runners.values():
                runner.stop()
        assert self.broker.violations() == []


RECORD_OF_MAIN = "  resourceNames:\n  - headgate-cell-main\n"
"""The rule that binds the bridge to the record of the cell `main`, as kustomize writes it."""


@asynccontextmanager
async def deployment(plane: ControlPlane, broker: Broker) -> AsyncIterator[Deployment]:
    """Install what `headgate crds install` and `kubectl apply -k` do, but for the Deployments: those are run here."""
    async with open_transport(plane.access()) as transport:
        client = KubeClient(transport)
        async for installed in install(client):
            assert installed.usable, installed
        rendered = (await plane.kubectl("kustomize", str(MANIFESTS))).stdout
        # The record of a cell is named after it, and each test has a cell of its own.
        assert RECORD_OF_MAIN in rendered
        rendered = rendered.replace(RECORD_OF_MAIN, "")
        kinds = ["Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]
        documents = [each for each in rendered.split("\n---\n") if any(f"\nkind: {kind}\n" in each for kind in kinds)]
        await plane.kubectl("apply", "-f", "-", stdin="\n---\n".join(documents))
        await plane.kubectl("apply", "-k", str(MANIFESTS.parent / "policies"))
        # The rest must at least be what the API server would take.
        await plane.kubectl("apply", "--dry-run=server", "-f", "-", stdin=rendered)
        kubeconfigs = {
            process.name: await plane.service_account_kubeconfig(NAMESPACE, process.name)
            for process in processes().values()
            if process.kubernetes or process.name == READ_SIDE
        }
        yield Deployment(plane, client, broker, kubeconfigs)
