"""Writes are the scarce good: how many a workload costs, by the API server's own audit log, and none when idle."""

from collections import Counter
from collections.abc import Iterable

import anyio
import msgspec
import pytest
from tests.kube.e2e.cells import KUEUE, NAMESPACE, Cell, Deployment, Json
from tests.kube.e2e.objects import condition, flavor, furnished, is_true, job
from tests.kube.e2e.seeing import becomes, has, workload_of
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import PatchType
from headgate.adapters.kubernetes.resources import CLUSTER_QUEUES, JOBS, LOCAL_QUEUES, RESOURCE_FLAVORS, WORKLOADS
from headgate.processes.runtime.settings import BinderSettings
from headgate.testing.control_plane import AuditLine

pytestmark = [pytest.mark.anyio, pytest.mark.kube]

QUIET = {"binder": BinderSettings(events="off")}
READS = frozenset({"get", "list", "watch"})
FINALIZER = "kueue.x-k8s.io/resource-in-use"


def ours(deployment: Deployment, team: str) -> list[AuditLine]:
    """The requests of Headgate's processes for the objects in a namespace, and for cluster-scoped ones of its name."""
    prefix = f"system:serviceaccount:{NAMESPACE}:"
    return [
        line
        for line in deployment.plane.audit_lines()
        if line.user.startswith(prefix) and line.resource and team in (line.namespace, line.name)
    ]


def writes(lines: Iterable[AuditLine]) -> Counter[str]:
    """How often what was written, leases apart."""
    return Counter(
        f"{line.verb} {line.resource}{'/' if line.subresource else ''}{line.subresource}"
        for line in lines
        if line.verb not in READS and line.resource != "leases"
    )


def workload(team: str, name: str, cpu: str = "1") -> Json:
    container = {"name": "main", "image": "registry/train:1", "resources": {"requests": {"cpu": cpu}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": KUEUE,
        "kind": "Workload",
        "metadata": {"name": name, "namespace": team},
        "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": template}]},
    }


async def finish(deployment: Deployment, team: str, name: str) -> None:
    """What an owner of a workload does: mark it finished."""
    finished = {
        "type": "Finished",
        "status": "True",
        "reason": "Succeeded",
        "message": "over",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    over = {
        "apiVersion": KUEUE, "kind": "Workload", "metadata": {"name": name}, "status": {"conditions": [finished]},
    }  # fmt: skip
    await deployment.merge(
        WORKLOADS, name, team, over, patch_type=PatchType.APPLY, subresource="status", field_manager="driver"
    )


async def test_a_workload_costs_one_write(deployment: Deployment) -> None:
    """Made by a driver, admitted, finished by it: one write of its status, and the driver's is left unchanged."""
    team = deployment.fresh("team")
    async with deployment.cell(team, **QUIET) as cell:
        await deployment.apply(*furnished(team), *(workload(team, f"w{n}") for n in range(2)))
        for n in range(2):
            await becomes(deployment, WORKLOADS, f"w{n}", team, has("Admitted"))
            await finish(deployment, team, f"w{n}")
        await until(lambda: cell.holds(lambda state: not any(state.index.usage.get(team, {}).values())))
        await becomes(deployment, CLUSTER_QUEUES, team, None, lambda found: not found["status"]["admittedWorkloads"])
        seen = await deployment.get(WORKLOADS, "w0", team)
    lines = ours(deployment, team)
    assert writes(line for line in lines if line.resource == "workloads") == {"patch workloads/status": 2}
    assert {line.code for line in lines if line.verb not in READS} <= {200, 201}
    assert {each["type"] for each in seen["status"]["conditions"]} == {"QuotaReserved", "Admitted", "Finished"}
    managers = {each["manager"]: each for each in seen["metadata"]["managedFields"]}
    assert (managers["kueue-admission"]["operation"], managers["kueue-admission"]["subresource"]) == ("Apply", "status")
    assert "Finished" not in str(managers["kueue-admission"]["fieldsV1"])


async def test_a_job_costs_five_writes(deployment: Deployment) -> None:
    """Its Workload; admitted; resumed with all that an admission adds; finished; the finalizer taken away."""
    team = deployment.fresh("team")
    async with deployment.cell(team, **QUIET):
        spot = flavor(team, nodeLabels={"kubernetes.io/os": "linux"})
        await deployment.plane.kubectl("label", "node", "--all", "kubernetes.io/os=linux", "--overwrite")
        await deployment.apply(*furnished(team), spot, job(team, "train"))
        await becomes(deployment, JOBS, "train", team, has("Complete"))
        found = await workload_of(
            deployment, team, has("Finished"), lambda found: "finalizers" not in found["metadata"]
        )
        seen = await deployment.get(JOBS, "train", team)
    assert seen["spec"]["template"]["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
    about = [line for line in ours(deployment, team) if line.resource in {"workloads", "jobs"}]
    assert writes(about) == {
        "create workloads": 1,
        "patch workloads/status": 2,
        "patch jobs": 1,
        "patch workloads": 1,
    }
    assert {line.code for line in about if line.verb not in READS} <= {200, 201}
    (owner,) = found["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["controller"], owner["blockOwnerDeletion"]) == ("Job", True, True)
    assert found["metadata"]["labels"] == {"kueue.x-k8s.io/job-uid": seen["metadata"]["uid"]}
    (pod_set,) = found["spec"]["podSets"]
    (container,) = pod_set["template"]["spec"]["containers"]
    assert container["image"] == "registry/train:1"
    assert pod_set["template"]["metadata"]["annotations"]["headgate.dev/run-ms"] == "200"


async def test_a_job_that_runs_for_a_while_costs_one_more(deployment: Deployment) -> None:
    """Kueue's default waits for pods: the condition goes with the admission, and that they are ready is one write."""
    team = deployment.fresh("team")
    async with deployment.cell(team, **QUIET):
        await deployment.apply(*furnished(team), job(team, "train", run_ms=8_000))
        admitted = await workload_of(deployment, team, has("Admitted"))
        assert condition(admitted, "PodsReady") == ("False", "WaitForStart")
        await workload_of(deployment, team, has("PodsReady", "True", "Started"))
        found = await workload_of(
            deployment, team, has("Finished"), lambda found: "finalizers" not in found["metadata"]
        )
    assert condition(found, "PodsReady") == ("True", "Started")
    about = [line for line in ours(deployment, team) if line.resource in {"workloads", "jobs"}]
    assert writes(about) == {
        "create workloads": 1,
        "patch workloads/status": 3,
        "patch jobs": 1,
        "patch workloads": 1,
    }


async def test_a_job_that_waits_keeps_its_template_over_a_restart(deployment: Deployment) -> None:
    """Its Workload cannot be made before its priority class is there; then the Job is read, for the log is trimmed."""
    team = deployment.fresh("team")
    label = {"kueue.x-k8s.io/priority-class": team}
    async with deployment.cell(team, **QUIET) as cell:
        await deployment.apply(*furnished(team), job(team, "train", run_ms=600_000, labels=label))
        await until(lambda: cell.holds(lambda state: any(record.refused for record in state.jobs.values())))
    value = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": team}, "value": 7}
    await deployment.apply(value)
    async with deployment.cell(team, **QUIET):
        found = await workload_of(deployment, team, has("Admitted"))
        (container,) = found["spec"]["podSets"][0]["template"]["spec"]["containers"]
        assert container["image"] == "registry/train:1"
        assert found["spec"]["priority"] == 7
        await deployment.apply(job(team, "later", run_ms=600_000), job(team, "moves", pods=2))

        async def waits() -> bool:
            return len(await deployment.all(WORKLOADS, team)) == 3

        await until(waits)
        labels = {"kueue.x-k8s.io/queue-name": "elsewhere"}
        await deployment.merge(JOBS, "moves", team, {"metadata": {"labels": labels}})

        async def has_moved() -> bool:
            queues = [each["spec"]["queueName"] for each in await deployment.all(WORKLOADS, team)]
            return sorted(queues) == ["elsewhere", "main", "main"]

        await until(has_moved)


async def test_an_idle_cluster_costs_nothing(deployment: Deployment) -> None:
    """No write repeats; a restart reads the present objects, and writes none of them again."""
    team = deployment.fresh("team")
    async with deployment.cell(team) as cell:
        await deployment.apply(*furnished(team), workload(team, "runs"))
        await becomes(deployment, WORKLOADS, "runs", team, has("Admitted"))
        await deployment.apply(workload(team, "waits", cpu="2"))
        await becomes(deployment, WORKLOADS, "waits", team, has("QuotaReserved", "False"))
        await becomes(
            deployment, CLUSTER_QUEUES, team, None,
            lambda found: found["status"].get("pendingWorkloads") == 1 and found["status"]["admittedWorkloads"] == 1,
        )  # fmt: skip
        await _settle(deployment, team)
        before = len(ours(deployment, team))
        await anyio.sleep(2)
        idle = ours(deployment, team)[before:]
        assert writes(idle) == {}
        await _is_marked(deployment, team, cell)
    before = len(ours(deployment, team))
    async with deployment.cell(team) as cell:
        await until(lambda: cell.holds(lambda state: state.synced))
        await anyio.sleep(2)
        again = ours(deployment, team)[before:]
    assert writes(again) == {}
    assert {line.verb for line in again if line.resource in {"clusterqueues", "localqueues"}} >= {"get"}


async def _is_marked(deployment: Deployment, team: str, cell: Cell) -> None:
    """
    Wait until the log has the objects as they are now.

    What has changed after the last mark is shown once more after a restart, each change on its own.
    """
    names = {
        CLUSTER_QUEUES: (team, None),
        RESOURCE_FLAVORS: (team, None),
        LOCAL_QUEUES: ("main", team),
        WORKLOADS: ("waits", team),
    }
    versions = {
        resource.plural: int((await deployment.get(resource, *name))["metadata"]["resourceVersion"])
        for resource, name in names.items()
    }

    def marks() -> dict[str, str]:
        return {} if cell.state is None else cell.state.resource_versions

    await until(
        lambda: all(int(marks().get(plural, 0)) >= version for plural, version in versions.items()),
        lambda: f"marks {marks()} that have reached {versions}",
    )


async def _settle(deployment: Deployment, team: str) -> None:
    """Wait until two seconds have brought nothing new: a status of a queue is written at most once in one."""
    seen: Counter[str] | None = None

    async def nothing_is_new() -> bool:
        nonlocal seen
        before, seen = seen, writes(ours(deployment, team))
        if before != seen:
            await anyio.sleep(2)
        return before == seen

    await until(nothing_is_new, lambda: f"two seconds without a write; written so far: {seen}")


async def test_why_a_workload_waits_is_told_and_goes_with_its_end(deployment: Deployment) -> None:
    """Kueue's condition, a Warning for `kubectl describe`, and its requests; admission takes them over."""
    team = deployment.fresh("team")
    async with deployment.cell(team):
        await deployment.apply(*furnished(team), workload(team, "first", cpu="2"))
        await becomes(deployment, WORKLOADS, "first", team, has("Admitted"))
        await deployment.apply(workload(team, "second", cpu="2"))
        waits = await becomes(deployment, WORKLOADS, "second", team, has("QuotaReserved", "False", "WaitingForQuota"))
        assert waits["status"]["resourceRequests"] == [{"name": "main", "resources": {"cpu": "2"}}]

        async def described() -> bool:
            told = await deployment.plane.kubectl("describe", "workload", "second", "-n", team)
            return "WaitingForQuota" in told.stdout.split("Events:")[1]

        await until(described)
        await finish(deployment, team, "first")
        runs = await becomes(deployment, WORKLOADS, "second", team, has("Admitted"))
        assert "resourceRequests" not in runs["status"]
        told = (await deployment.plane.kubectl("get", "events", "-n", team, "-o", "json")).stdout
    events = msgspec.json.decode(told)["items"]
    assert {(each["involvedObject"]["name"], each["reason"]) for each in events} >= {
        ("first", "Admitted"), ("second", "WaitingForQuota"),
    }  # fmt: skip
    assert {each["reportingComponent"] for each in events} == {"headgate"}


async def test_finalizers_hold_what_is_in_use(deployment: Deployment) -> None:
    """A ClusterQueue stays while quota is held in it, and a flavor while a ClusterQueue names it."""
    team = deployment.fresh("team")
    async with deployment.cell(team):
        await deployment.apply(*furnished(team), workload(team, "runs"))
        await becomes(deployment, WORKLOADS, "runs", team, has("Admitted"))
        await becomes(deployment, CLUSTER_QUEUES, team, None, lambda found: found["metadata"].get("finalizers"))
        assert (await deployment.get(CLUSTER_QUEUES, team))["metadata"]["finalizers"] == [FINALIZER]
        await deployment.plane.kubectl("delete", "clusterqueue", team, "--wait=false")
        await deployment.plane.kubectl("delete", "resourceflavor", team, "--wait=false")
        shown = await becomes(deployment, CLUSTER_QUEUES, team, None, has("Active", "False", "Terminating"))
        assert is_true(await deployment.get(WORKLOADS, "runs", team), "Admitted")
        assert condition(shown, "Active") == ("False", "Terminating")
        await finish(deployment, team, "runs")
        await deployment.plane.kubectl("wait", "--for=delete", f"clusterqueue/{team}", "--timeout=30s")
        await deployment.plane.kubectl("wait", "--for=delete", f"resourceflavor/{team}", "--timeout=30s")


async def test_the_answer_of_an_admission_check_is_never_overwritten(deployment: Deployment) -> None:
    """Its controller answers before we have seen it; our next write is refused, and made again with the answer."""
    team = deployment.fresh("team")
    check = {"apiVersion": KUEUE, "kind": "AdmissionCheck", "metadata": {"name": team}, "spec": {"controllerName": "x"}}
    active = {
        "type": "Active",
        "status": "True",
        "reason": "Active",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    async with deployment.cell(team):
        strategy = {"admissionChecks": [{"name": team}]}
        await deployment.apply(check, *furnished(team, admissionChecksStrategy=strategy))
        await deployment.plane.kubectl(
            "patch", "admissioncheck", team, "--subresource=status", "--type=merge",
            "-p", msgspec.json.encode({"status": {"conditions": [active]}}).decode(),
        )  # fmt: skip
        await deployment.apply(workload(team, "w"))
        found = await becomes(deployment, WORKLOADS, "w", team, has("QuotaReserved"))
        (state,) = found["status"]["admissionChecks"]
        assert (state["name"], state["state"]) == (team, "Pending")
        assert condition(found, "Admitted") == ("False", "UnsatisfiedAdmissionChecks")
        state |= {"state": "Ready", "message": "go"}
        answer = {
            "apiVersion": KUEUE,
            "kind": "Workload",
            "metadata": {"name": "w"},
            "status": {"admissionChecks": [state]},
        }
        await deployment.merge(
            WORKLOADS,
            "w",
            team,
            answer,
            patch_type=PatchType.APPLY,
            subresource="status",
            field_manager="x",
            force=True,
        )
        found = await becomes(deployment, WORKLOADS, "w", team, has("Admitted"))
        (state,) = found["status"]["admissionChecks"]
        assert (state["state"], state["message"]) == ("Ready", "go")
