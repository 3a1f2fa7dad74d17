"""The control plane of the tests: real, ready when it begins, with the configured faults, gone when it ends."""

import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.waiting import until

from headgate.testing.control_plane import (
    API_SERVER,
    CONTROLLERS,
    ETCD,
    KUBERNETES_VERSION,
    KWOK,
    READY_ANNOTATION,
    Assets,
    ControlPlane,
    ControlPlaneError,
    Options,
    StartError,
    control_plane,
)
from headgate.testing.control_plane.assets import cache_folder

pytestmark = [pytest.mark.kube, pytest.mark.anyio]  # the second is without effect on functions that are not async

WAIT = "--timeout=60s"


async def get(plane: ControlPlane, *what: str) -> Any:
    """Objects as kubectl reads them."""
    return msgspec.json.decode((await plane.kubectl("get", *what, "-o", "json")).stdout)


async def create(plane: ControlPlane, *objects: dict[str, Any]) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    await plane.kubectl("create", "-f", "-", stdin=msgspec.json.encode(listed).decode())


def pod(name: str, policy: str = "Never", **annotations: str) -> dict[str, Any]:
    """A pod on the node; annotations are headgate.dev's, with underscores."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "annotations": {f"headgate.dev/{key.replace('_', '-')}": value for key, value in annotations.items()},
        },
        "spec": {
            "nodeName": "node-0",
            "restartPolicy": policy,
            "containers": [{"name": "main", "image": "busybox"}, {"name": "beside", "image": "busybox"}],
        },
    }


def job(name: str, exit_code: str = "0") -> dict[str, Any]:
    template = pod(name, run_ms="10", exit_code=exit_code)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "backoffLimit": 0,
            "template": {"metadata": {"annotations": template["metadata"]["annotations"]}, "spec": template["spec"]},
        },
    }


# --- what is there when it begins -----------------------------------------------------------------------------------


async def test_it_says_its_version(plane: ControlPlane, assets: Assets) -> None:
    """The pinned one, or that of the folder which the user has named; never a development version."""
    version = msgspec.json.decode((await plane.kubectl("version", "-o", "json")).stdout)
    assert await plane.version() == version["serverVersion"]["gitVersion"] == version["clientVersion"]["gitVersion"]
    assert await plane.version() == KUBERNETES_VERSION or assets.folder != cache_folder()


async def test_it_has_a_node_that_is_ready(plane: ControlPlane) -> None:
    """No caller has to wait."""
    (node,) = (await get(plane, "nodes"))["items"]
    assert {"Ready": "True"}.items() <= {each["type"]: each["status"] for each in node["status"]["conditions"]}.items()
    assert node["status"]["allocatable"] == {"cpu": "4", "memory": "16Gi", "pods": "110"}
    assert set(plane.pids()) == {ETCD, API_SERVER, CONTROLLERS, KWOK}


async def test_the_default_namespace_has_its_service_account(plane: ControlPlane) -> None:
    """The controllers have begun their work."""
    assert (await get(plane, "serviceaccount", "default", "-n", "default"))["metadata"]["name"] == "default"


# --- nodes and pods are played --------------------------------------------------------------------------------------


async def test_jobs_run_to_their_end_under_the_real_job_controller(plane: ControlPlane) -> None:
    """A pod runs as long as its annotations set, then succeeds or fails by them."""
    await create(plane, job("succeeds"), job("fails", exit_code="3"))
    await plane.kubectl("wait", "job/succeeds", "--for=condition=Complete", WAIT)
    await plane.kubectl("wait", "job/fails", "--for=condition=Failed", WAIT)
    pods = (await get(plane, "pods", "--selector=job-name=fails"))["items"]
    states = [each["state"]["terminated"] for one in pods for each in one["status"]["containerStatuses"]]
    assert {(state["exitCode"], state["reason"]) for state in states} <= {(3, "Error"), (143, "Error")}
    assert 3 in {state["exitCode"] for state in states}


@pytest.mark.parametrize(
    ("name", "policy", "annotations", "phase"),
    [
        ("says-nothing", "Never", {}, "Succeeded"),
        ("is-slow-to-start", "Never", {"start_ms": "50", "run_ms": "10"}, "Succeeded"),
        ("ends-well", "OnFailure", {"run_ms": "10"}, "Succeeded"),
        ("ends-badly", "Never", {"run_ms": "10", "exit_code": "1"}, "Failed"),
        ("is-to-stay", "Always", {}, "Running"),
    ],
)
async def test_a_pod_does_what_it_says(
    plane: ControlPlane, name: str, policy: str, annotations: dict[str, str], phase: str
) -> None:
    """The annotations are those of the simulated cluster's kubelet."""
    await create(plane, pod(name, policy, **annotations))
    await plane.kubectl("wait", f"pod/{name}", f"--for=jsonpath={{.status.phase}}={phase}", WAIT)
    statuses = (await get(plane, "pod", name))["status"]["containerStatuses"]
    assert [each["restartCount"] for each in statuses] == [0, 0]


async def test_containers_that_fail_are_started_again_after_a_pause(plane: ControlPlane) -> None:
    """Restart policy OnFailure: the pod continues, and its containers wait in CrashLoopBackOff."""
    await create(plane, pod("crashes", "OnFailure", run_ms="10", exit_code="1"))
    reason = "{.status.containerStatuses[0].state.waiting.reason}"
    await plane.kubectl("wait", "pod/crashes", f"--for=jsonpath={reason}=CrashLoopBackOff", WAIT)
    status = (await get(plane, "pod", "crashes"))["status"]
    assert status["phase"] == "Running"
    assert [each["restartCount"] for each in status["containerStatuses"]] == [1, 1]


async def test_pods_go_on_when_the_kubelets_are_started_again(plane: ControlPlane) -> None:
    """Those that ran end in their time, those that were bound meanwhile start."""
    await create(plane, pod("runs", run_ms="4000"))
    await plane.kubectl("wait", "pod/runs", "--for=condition=Ready", WAIT)
    plane.kill(KWOK)
    await create(plane, pod("is-bound-meanwhile", run_ms="10"))
    await plane.start(KWOK)
    for name in ("runs", "is-bound-meanwhile"):
        await plane.kubectl("wait", f"pod/{name}", "--for=jsonpath={.status.phase}=Succeeded", WAIT)


async def test_a_deleted_pod_dies_and_goes(plane: ControlPlane) -> None:
    """In the time of its annotation."""
    await create(plane, pod("dies", "Always", stop_ms="50"))
    await plane.kubectl("wait", "pod/dies", "--for=condition=Ready", WAIT)
    await plane.kubectl("delete", "pod", "dies", "--wait", WAIT)
    assert "dies" not in (await plane.kubectl("get", "pods", "--output=name")).stdout


async def test_a_node_goes_not_ready_and_comes_back(plane: ControlPlane) -> None:
    """By its annotation; the taint is the real node controller's."""
    await create(plane, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "frail"}})
    await plane.kubectl("wait", "node/frail", "--for=condition=Ready", WAIT)
    await plane.kubectl("annotate", "node", "frail", f"{READY_ANNOTATION}=Unknown")
    await plane.kubectl("wait", "node/frail", "--for=condition=Ready=Unknown", WAIT)
    unreachable = "{.spec.taints[*].key}"
    await plane.kubectl("wait", "node/frail", f"--for=jsonpath={unreachable}=node.kubernetes.io/unreachable", WAIT)
    await plane.kubectl("annotate", "node", "frail", f"{READY_ANNOTATION}-")
    await plane.kubectl("wait", "node/frail", "--for=condition=Ready", WAIT)
    await plane.kubectl("delete", "node", "frail")


# --- who asks -------------------------------------------------------------------------------------------------------


async def test_a_service_account_may_do_what_rbac_grants_and_the_audit_log_tells(plane: ControlPlane) -> None:
    """The refused and the granted request are in it, with user, verb and resource."""
    await plane.kubectl("create", "namespace", "robots")
    await plane.kubectl("create", "serviceaccount", "reader", "-n", "robots")
    await plane.kubectl("create", "role", "reader", "--verb=list", "--resource=pods/status,pods", "-n", "robots")
    robot = await plane.service_account_kubeconfig("robots", "reader")
    refused = await plane.kubectl("get", "pods", kubeconfig=robot, check=False)
    assert 'User "system:serviceaccount:robots:reader" cannot list resource "pods"' in refused.stderr
    binding = ["create", "rolebinding", "reader", "--role=reader", "--serviceaccount=robots:reader", "-n", "robots"]
    await plane.kubectl(*binding)

    async def granted() -> bool:  # the authorizer gets the binding by a watch
        return (await plane.kubectl("get", "pods", kubeconfig=robot, check=False)).returncode == 0

    await until(granted)
    lines = [line for line in plane.audit_lines() if line.user == "system:serviceaccount:robots:reader"]
    assert {(line.verb, line.resource, line.namespace) for line in lines if line.resource == "pods"} == {
        ("list", "pods", "robots")
    }
    assert {line.code for line in lines if line.resource == "pods"} == {403, 200}


async def test_a_watch_stands_in_the_audit_log_while_it_is_open(plane: ControlPlane) -> None:
    """Once, and not again when it ends: what is counted is requests."""
    user = "system:kube-controller-manager"
    watches = [line.uri for line in plane.audit_lines() if line.user == user and line.verb == "watch"]
    assert any(uri.startswith("/apis/batch/v1/jobs?") for uri in watches)


async def test_there_is_no_token_for_a_service_account_that_is_not_there(plane: ControlPlane) -> None:
    """The API server's words are in the error."""
    with pytest.raises(ControlPlaneError, match='serviceaccounts "nobody" not found'):
        await plane.service_account_kubeconfig("default", "nobody")


async def test_what_kubectl_refuses_is_an_error_with_its_words(plane: ControlPlane) -> None:
    """Unless the caller handles it."""
    with pytest.raises(ControlPlaneError, match='namespaces "nowhere" not found'):
        await plane.kubectl("get", "namespace", "nowhere")
    assert (await plane.kubectl("get", "namespace", "nowhere", check=False)).returncode == 1


# --- what can be done to it -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
async def victim(
    anyio_backend: str, assets: Assets, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    """One that is killed and set back: an API server and its storage."""
    options = Options(controllers=False, kwok=False, nodes=0)
    async with control_plane(assets, tmp_path_factory.mktemp("victim"), options=options) as running:
        yield running


async def create_config(plane: ControlPlane, name: str) -> int:
    """A ConfigMap; the resource version that its creation has made."""
    version = "jsonpath={.metadata.resourceVersion}"
    return int((await plane.kubectl("create", "configmap", name, "-o", version)).stdout)


async def configs(plane: ControlPlane) -> str:
    return (await plane.kubectl("get", "configmaps", "-o", "name")).stdout


@pytest.mark.parametrize("name", [API_SERVER, ETCD])
async def test_what_is_killed_and_started_again_has_its_address_and_its_data(victim: ControlPlane, name: str) -> None:
    """Nothing that was answered is lost, though nothing waits for the disk: the system has what was written."""
    await create_config(victim, f"before-{name}")
    address, before = victim.url, victim.pids()[name]
    victim.kill(name)
    assert name not in victim.pids()
    await victim.start(name)
    assert victim.pids()[name] != before
    await until(lambda: _answers(victim))
    assert victim.url == address
    assert f"configmap/before-{name}" in await configs(victim)


async def _answers(plane: ControlPlane) -> bool:
    return (await plane.kubectl("get", "--raw", "/readyz", check=False)).returncode == 0


async def test_history_is_gone_after_a_compaction(victim: ControlPlane) -> None:
    """A list at an older version is refused with 410, before and after a restart of the API server."""
    old = await create_config(victim, "old")
    young = await create_config(victim, "young")
    assert await victim.compact() >= young
    path = f"/api/v1/namespaces/default/configmaps?resourceVersion={old}&resourceVersionMatch=Exact"

    async def is_expired() -> bool:  # the API server learns of the compaction by a watch
        refused = await victim.kubectl("get", "--raw", path, check=False)
        return "Error from server (Expired)" in refused.stderr

    await until(is_expired)
    victim.kill(API_SERVER)
    await victim.start(API_SERVER)
    assert await is_expired()


async def test_a_restored_backup_takes_back_what_was_written_since(victim: ControlPlane) -> None:
    """And resource versions go back: the next write has a version that another write has had before."""
    await create_config(victim, "kept")
    await victim.backup()
    lost = await create_config(victim, "lost")
    for number in range(20):
        await create_config(victim, f"lost-{number}")
    await victim.restore()
    assert "configmap/kept" in await configs(victim)
    assert "configmap/lost" not in await configs(victim)
    assert await create_config(victim, "after") < lost + 20


# --- how it ends ----------------------------------------------------------------------------------------------------


async def test_a_component_that_does_not_start_says_why(assets: Assets, tmp_path: Path) -> None:
    """The end of its log is in the error, and nothing stays behind."""
    options = Options(controllers=False, kwok=False, nodes=0, apiserver_flags=("--no-such-flag",))
    with pytest.raises(StartError, match=r"(?s)kube-apiserver ended with exit code 1.*unknown flag: --no-such-flag"):
        async with control_plane(assets, tmp_path, options=options):
            pytest.fail("it started")
    assert not running_in(tmp_path)


def running_in(folder: Path) -> list[str]:
    """The command lines of processes that have something to do with a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = process.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it has ended meanwhile
        if f"={folder}/" in line:
            found.append(line)
    return found


HOLDER = """
import sys, anyio
from pathlib import Path
from headgate.testing.control_plane import Options, control_plane, find_assets

async def hold():
    async with control_plane(find_assets(), Path(sys.argv[1])) as plane:
        print(len(plane.pids()), flush=True)
        await anyio.sleep_forever()

anyio.run(hold)
"""


@pytest.mark.parametrize("end", [subprocess.Popen.kill, subprocess.Popen.terminate], ids=["killed", "told to end"])
def test_it_ends_with_whoever_holds_it(all_assets: Assets, tmp_path: Path, end: Callable) -> None:
    """A test run that is killed leaves nothing behind."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "4\n"
        assert len(running_in(tmp_path)) == 4
        end(holder)
    while running_in(tmp_path):
        time.sleep(0.01)
