"""Kueue's own kubectl plugin, built unchanged from its module, works on our definitions: `kubectl kueue ...`."""

import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import anyio.to_thread
import msgspec
import pytest
from tests.kube.test_visibility import Aggregated, aggregated

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.crds.install import install
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.testing.control_plane import Assets, ControlPlane
from headgate.testing.control_plane.assets import KUBECTL
from headgate.testing.control_plane.kueue_programs import PLUGIN, find_program

pytestmark = [pytest.mark.kube, pytest.mark.anyio, pytest.mark.operators]

__all__ = ["aggregated"]

Json = dict[str, Any]


class Plugin(NamedTuple):
    """`kubectl kueue` on a control plane with our definitions and our visibility API."""

    plane: ControlPlane
    path: str

    async def run(self, *args: str, check: bool = True, stdin: str = "") -> str:
        """What it prints; both streams if it fails and may."""
        env = {
            **os.environ,
            "PATH": self.path,
            "KUBECONFIG": str(self.plane.kubeconfig),
            "HOME": str(self.plane.folder),
        }
        done = await anyio.run_process([KUBECTL, "kueue", *args], input=stdin.encode(), check=False, env=env)
        said = done.stdout.decode() + done.stderr.decode()
        assert done.returncode == 0 or not check, f"{' '.join(args)}: {said}"
        return said


@pytest.fixture(scope="module")
async def plugin(aggregated: Aggregated, assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> Plugin:
    """The plugin beside kubectl, on a PATH of its own."""
    binary = find_program(PLUGIN)
    folder: Path = tmp_path_factory.mktemp("bin")
    (folder / PLUGIN).symlink_to(binary)
    (folder / KUBECTL).symlink_to(assets.binary(KUBECTL))
    async with open_transport(aggregated.plane.access()) as transport:
        assert [each async for each in install(KubeClient(transport))]
    assert shutil.which("kubectl", path=str(folder))
    return Plugin(aggregated.plane, f"{folder}:{os.environ['PATH']}")


async def spec_of(plugin: Plugin, *what: str) -> Json:
    """An object's spec, by kubectl."""
    found = msgspec.json.decode((await plugin.plane.kubectl("get", *what, "-o", "json")).stdout)
    spec: Json = found["spec"]
    return spec


async def test_create(plugin: Plugin) -> None:
    """Flavors, ClusterQueues and LocalQueues with all their flags; a dry run creates nothing."""
    said = await plugin.run(
        "create", "resourceflavor", "spot", "--node-labels", "zone=a", "--node-taints", "spot=true:NoSchedule"
    )
    assert said == "resourceflavor.kueue.x-k8s.io/spot created\n"
    assert (await spec_of(plugin, "resourceflavor", "spot"))["nodeLabels"] == {"zone": "a"}
    said = await plugin.run(
        *("create", "clusterqueue", "team", "--cohort", "all", "--queuing-strategy", "StrictFIFO"),
        *("--namespace-selector", "team=a", "--reclaim-within-cohort", "Any"),
        *("--preemption-within-cluster-queue", "LowerPriority"),
        *("--nominal-quota", "spot:cpu=9;memory=36Gi", "--borrowing-limit", "spot:cpu=1;memory=1Gi"),
        *("--lending-limit", "spot:cpu=1;memory=1Gi"),
    )
    assert said == "clusterqueue.kueue.x-k8s.io/team created\n"
    spec = await spec_of(plugin, "clusterqueue", "team")
    assert (spec["cohortName"], spec["queueingStrategy"]) == ("all", "StrictFIFO")
    assert spec["preemption"]["reclaimWithinCohort"] == "Any"
    resources = {each["name"]: each for each in spec["resourceGroups"][0]["flavors"][0]["resources"]}
    assert resources["cpu"] == {"name": "cpu", "nominalQuota": "9", "borrowingLimit": "1", "lendingLimit": "1"}
    await plugin.run("create", "clusterqueue", "never", "--dry-run=server")
    assert "NotFound" in (await plugin.plane.kubectl("get", "clusterqueue", "never", check=False)).stderr
    assert "not found" in await plugin.run("create", "localqueue", "main", "-c", "absent", check=False)
    assert await plugin.run("create", "localqueue", "main", "-c", "team") == "localqueue.kueue.x-k8s.io/main created\n"
    assert (await spec_of(plugin, "localqueue", "main"))["clusterQueue"] == "team"


WORKLOAD = """
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: train, namespace: default}
spec:
  queueName: main
  podSets: [{name: main, template: {spec: {containers: [{name: c, image: i}]}}}]
"""


async def test_list_stop_resume_delete_and_passthrough(plugin: Plugin) -> None:
    """Of queues, flavors and Workloads; `get`, `patch`, `describe` and `delete` go through to kubectl."""
    await plugin.run("create", "clusterqueue", "cq", "--nominal-quota", "spot:cpu=1")
    await plugin.run("create", "localqueue", "one", "-c", "cq")
    await plugin.plane.kubectl("apply", "-f", "-", stdin=WORKLOAD.replace("main\n", "one\n", 1))
    assert "cq" in await plugin.run("list", "clusterqueue")
    assert "one" in await plugin.run("list", "localqueue")
    assert "No resources found" in await plugin.run("list", "resourceflavor", "--field-selector", "metadata.name=none")
    lines = (await plugin.run("list", "workload")).splitlines()
    assert "PENDING" in lines[1]
    assert lines[1].split()[0] == "train"
    assert "No resources found" in await plugin.run("list", "workload", "--status", "finished")
    for command, policy in (
        (("stop", "clusterqueue", "cq"), "HoldAndDrain"),
        (("resume", "clusterqueue", "cq"), "None"),
        (("stop", "clusterqueue", "cq", "--keep-already-running"), "Hold"),
        (("resume", "clusterqueue", "cq"), "None"),
    ):
        await plugin.run(*command)
        assert (await spec_of(plugin, "clusterqueue", "cq"))["stopPolicy"] == policy
    await plugin.run("stop", "localqueue", "one")
    assert (await spec_of(plugin, "localqueue", "one"))["stopPolicy"] == "HoldAndDrain"
    await plugin.run("resume", "localqueue", "one")
    assert (await spec_of(plugin, "localqueue", "one"))["stopPolicy"] == "None"
    await plugin.run("stop", "workload", "train")
    assert (await spec_of(plugin, "workload", "train"))["active"] is False
    await plugin.run("resume", "workload", "train")
    assert (await spec_of(plugin, "workload", "train"))["active"] is True
    assert "name: cq" in await plugin.run("get", "clusterqueue", "cq", "-o", "yaml")
    await plugin.run("patch", "localqueue", "one", "--type=merge", "-p", '{"metadata":{"labels":{"a":"b"}}}')
    assert "a=b" in await plugin.run("describe", "localqueue", "one")
    await plugin.run("delete", "workload", "train", "--yes")
    assert "NotFound" in (await plugin.plane.kubectl("get", "workload", "train", check=False)).stderr
    await plugin.run("delete", "localqueue", "one")
    await plugin.run("delete", "clusterqueue", "cq")
    assert "NotFound" in (await plugin.plane.kubectl("get", "clusterqueue", "cq", check=False)).stderr
