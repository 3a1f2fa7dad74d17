"""
Admission on a real control plane: preemption, reclaim, fair shares, fewer pods, checks, pods that do not get ready.

Jobs ask for a tenth of a CPU, so that the nodes have room for all of them beside those of other tests.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from tests.kube.e2e.cells import KUEUE, Deployment, Json
from tests.kube.e2e.checks import active, answer, check, check_state
from tests.kube.e2e.objects import cluster_queue, condition, flavor, furnished, is_true, job, local_queue, namespace
from tests.kube.e2e.seeing import becomes, has, workload_of
from tests.support.waiting import until

from headgate.adapters.kubernetes.client import PatchType, Propagation
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.resources import CLUSTER_QUEUES, COHORTS, JOBS, PODS, TOPOLOGIES, WORKLOADS
from headgate.core.kubernetes.conditions import parse_rfc3339, rfc3339
from headgate.processes.runtime.settings import BridgeSettings

pytestmark = [pytest.mark.anyio, pytest.mark.kube]

LONG_MS = 600_000
RECLAIMS = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}


def small(team: str, name: str, **more: Any) -> Json:
    """A Job of pods of a tenth of a CPU."""
    return job(team, name, cpu="100m", **{"run_ms": LONG_MS, **more})


def priority(name: str, value: int) -> Json:
    return {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}


def of_class(name: str) -> Mapping[str, str]:
    return {"kueue.x-k8s.io/priority-class": name}


@contextmanager
def configured(**parts: Any) -> Iterator[BridgeSettings]:
    """The bridge with a file of Kueue's Configuration, as `--config` gives it."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "configuration.yaml"
        header = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
        file.write_text(yaml.safe_dump({**header, **parts}))
        yield BridgeSettings(configuration=str(file))


def shows_share(share: int) -> Callable[[Json], bool]:
    """That the status of a ClusterQueue or Cohort shows this weighted share."""
    return lambda found: found.get("status", {}).get("fairSharing") == {"weightedShare": share}


async def runs(deployment: Deployment, team: str, name: str, pods: int = 1) -> Json:
    """Wait until all pods of a Job are ready."""
    return await becomes(deployment, JOBS, name, team, lambda found: found["status"].get("ready") == pods)


async def waits(deployment: Deployment, team: str, name: str) -> Json:
    """Wait until a Job is suspended and has no pod."""
    return await becomes(
        deployment, JOBS, name, team, lambda found: found["spec"]["suspend"], lambda found: not pods_of(found)
    )


def pods_of(found: Json) -> int:
    status = found.get("status", {})
    return int(status.get("active", 0)) + int(status.get("terminating") or 0)


async def workload_of_job(deployment: Deployment, team: str, name: str) -> Json:
    found = await deployment.all(WORKLOADS, team)
    (one,) = (each for each in found if each["metadata"]["ownerReferences"][0]["name"] == name)
    return one


async def reasons(deployment: Deployment, team: str, about: str) -> set[str]:
    """The reasons of the Kubernetes Events about an object."""
    column = "custom-columns=:regarding.name,:reason"
    table = await deployment.plane.kubectl("get", "events.events.k8s.io", "-n", team, "--no-headers", "-o", column)
    pairs = [line.split() for line in table.stdout.splitlines()]
    return {reason for name, reason in pairs if name == about}


async def test_a_higher_priority_takes_the_quota_and_gives_it_back(deployment: Deployment) -> None:
    """Within a queue: the low one is suspended, the high one runs to its end, the low one resumes by itself."""
    team = deployment.fresh("team")
    queue = furnished(team, cpu="200m", preemption={"withinClusterQueue": "LowerPriority"})
    async with deployment.cell(team):
        await deployment.apply(priority(f"{team}-high", 1000), *queue, small(team, "low", pods=2))
        await runs(deployment, team, "low", 2)
        await deployment.apply(small(team, "high", run_ms=3_000, labels=of_class(f"{team}-high")))
        await runs(deployment, team, "high")
        await waits(deployment, team, "low")
        low = await workload_of_job(deployment, team, "low")
        assert condition(low, "Evicted") == ("True", "Preempted")
        assert condition(low, "Preempted") == ("True", "InClusterQueue")
        assert condition(low, "Requeued") == ("True", "Preempted")
        assert low["status"]["schedulingStats"]["evictions"] == [
            {"reason": "Preempted", "underlyingCause": "", "count": 1}
        ]
        await becomes(deployment, JOBS, "high", team, has("Complete"))
        await runs(deployment, team, "low", 2)
        low = await workload_of_job(deployment, team, "low")
        assert condition(low, "Preempted") == ("False", "QuotaReserved")
        high = await workload_of_job(deployment, team, "high")

        async def are_told() -> bool:
            about_low = await reasons(deployment, team, low["metadata"]["name"])
            return "Preempted" in about_low and "PreemptedWorkload" in await reasons(
                deployment, team, high["metadata"]["name"]
            )

        await until(are_told)


async def test_lent_quota_is_reclaimed(deployment: Deployment) -> None:
    """In a cohort: a queue that borrowed has to release what the owner reclaims."""
    team = deployment.fresh("team")
    mine, theirs = f"{team}-mine", f"{team}-theirs"
    queues = [
        cluster_queue(name, team, cpu="100m", cohortName=team, preemption={"reclaimWithinCohort": "Any"})
        for name in (mine, theirs)
    ]
    names = [local_queue(team, theirs), local_queue(team, mine, "mine")]
    async with deployment.cell(team):
        await deployment.apply(namespace(team), flavor(team), *queues, *names)
        await deployment.apply(small(team, "first"), small(team, "second"))
        await runs(deployment, team, "first")
        await runs(deployment, team, "second")
        await deployment.apply(small(team, "owner", queue="mine"))
        await runs(deployment, team, "owner")

        async def one_has_left() -> bool:
            found = [await deployment.get(JOBS, name, team) for name in ("first", "second")]
            return [each["spec"]["suspend"] for each in found].count(True) == 1

        await until(one_has_left)
        evicted = [each for each in await deployment.all(WORKLOADS, team) if condition(each, "Preempted")[0] == "True"]
        assert [condition(each, "Preempted") for each in evicted] == [("True", "InCohortReclamation")]


async def test_shares_are_made_equal(deployment: Deployment) -> None:
    """With fairSharing: of two queues that borrow, the one that came first has to leave half to the other."""
    team = deployment.fresh("team")
    first, second, lender = f"{team}-first", f"{team}-second", f"{team}-lender"
    queues = [
        cluster_queue(name, team, cpu=cpu, cohortName=team, preemption={"reclaimWithinCohort": "Any"})
        for name, cpu in ((first, "0"), (second, "0"), (lender, "400m"))
    ]
    names = [local_queue(team, first), local_queue(team, second, "second")]
    fair = {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]}
    cohort = {"apiVersion": KUEUE, "kind": "Cohort", "metadata": {"name": team}, "spec": {}}
    with configured(fairSharing=fair) as bridge:
        async with deployment.cell(team, bridge=bridge) as cell:
            await deployment.apply(namespace(team), flavor(team), cohort, *queues, *names)
            await deployment.apply(*(small(team, f"a{n}") for n in range(4)))
            for n in range(4):
                await runs(deployment, team, f"a{n}")
            await deployment.apply(*(small(team, f"b{n}", queue="second") for n in range(4)))

            def shares() -> list[int]:
                usage = cell.state.index.usage if cell.state is not None else {}
                return [sum(usage.get(name, {}).values()) for name in (first, second)]

            await until(lambda: shares() == [200, 200], shares)

            async def two_are_told_why() -> bool:
                told = [condition(each, "Preempted") for each in await deployment.all(WORKLOADS, team)]
                return [reason for status, reason in told if status == "True"] == ["InCohortFairSharing"] * 2

            await until(two_are_told_why)
            shares_shown = ((CLUSTER_QUEUES, first, 500), (CLUSTER_QUEUES, second, 500), (COHORTS, team, 0))
            for resource, name, share in shares_shown:
                await becomes(deployment, resource, name, None, shows_share(share))


async def test_a_job_that_may_run_with_fewer_pods_does(deployment: Deployment) -> None:
    """Partial admission: as many as there is quota for, and all of its completions in the end."""
    team = deployment.fresh("team")
    fewer = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    async with deployment.cell(team):
        await deployment.apply(
            *furnished(team, cpu="200m"), small(team, "train", pods=4, run_ms=500, annotations=fewer)
        )
        running = await becomes(deployment, JOBS, "train", team, lambda found: not found["spec"]["suspend"])
        assert running["spec"]["parallelism"] == 2
        admitted = await workload_of(deployment, team, has("Admitted"))
        (assignment,) = admitted["status"]["admission"]["podSetAssignments"]
        assert (assignment["count"], assignment["resourceUsage"]) == (2, {"cpu": "200m"})
        done = await becomes(deployment, JOBS, "train", team, has("Complete"))
        assert done["status"]["succeeded"] == 4


async def test_a_check_that_asks_for_a_retry_is_asked_again_after_its_time(deployment: Deployment) -> None:
    """Retry evicts and waits; Ready admits with its podSetUpdates, which are removed with the admission."""
    team = deployment.fresh("team")
    queue = furnished(team, cpu="100m", admissionChecksStrategy={"admissionChecks": [{"name": team}]})
    async with deployment.cell(team) as cell:
        await deployment.apply(check(team), *queue)
        await active(deployment, team)
        await becomes(deployment, CLUSTER_QUEUES, team, None, has("Active"))
        await deployment.apply(small(team, "train"))
        waiting = await workload_of(deployment, team, has("QuotaReserved"), lambda each: check_state(each) == "Pending")
        assert cell.state is not None
        now = rfc3339(cell.state.now_ms)
        await answer(deployment, waiting, "Retry", now, requeueAfterSeconds=3)
        backing_off = await workload_of(deployment, team, has("Requeued", "False", "AdmissionCheck"))
        assert condition(backing_off, "Evicted") == ("True", "AdmissionCheck")
        until_when = backing_off["status"]["requeueState"]["requeueAt"]
        assert parse_rfc3339(until_when) == parse_rfc3339(now) + 3_000
        again = await workload_of(deployment, team, has("QuotaReserved"), lambda each: check_state(each) == "Pending")
        assert condition(again, "Requeued") == ("True", "BackoffFinished")
        assert again["status"]["admissionChecks"][0]["retryCount"] == 1
        assert "requeueAt" not in again["status"].get("requeueState", {})
        updates = [{"name": "main", "labels": {"tier": "gold"}, "annotations": {"team": team}}]
        await answer(deployment, again, "Ready", podSetUpdates=updates)
        running = await runs(deployment, team, "train")
        template = running["spec"]["template"]["metadata"]
        assert (template["labels"]["tier"], template["annotations"]["team"]) == ("gold", team)
        (pod,) = await deployment.all(PODS, team)
        assert pod["metadata"]["labels"]["tier"] == "gold"
        admitted = await workload_of(deployment, team, has("Admitted"))
        await deployment.merge(WORKLOADS, admitted["metadata"]["name"], team, {"spec": {"active": False}})
        await becomes(
            deployment,
            JOBS,
            "train",
            team,
            lambda found: found["spec"]["suspend"],
            lambda found: "tier" not in found["spec"]["template"]["metadata"].get("labels", {}),
            lambda found: "team" not in found["spec"]["template"]["metadata"].get("annotations", {}),
        )


async def test_a_workload_is_switched_off_for_whoever_asks_for_it(deployment: Deployment) -> None:
    """A DeactivationTarget condition: its spec is switched off, its Job suspended, and its eviction has those words."""
    team = deployment.fresh("team")
    target = {
        "type": "DeactivationTarget",
        "status": "True",
        "reason": "Operator",
        "message": "the budget is spent",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    async with deployment.cell(team):
        await deployment.apply(*furnished(team, cpu="100m"), small(team, "train", run_ms=LONG_MS))
        await becomes(deployment, JOBS, "train", team, lambda found: not found["spec"]["suspend"])
        name = (await workload_of(deployment, team, has("Admitted")))["metadata"]["name"]
        asks = {"apiVersion": KUEUE, "kind": "Workload", "metadata": {"name": name}, "status": {"conditions": [target]}}
        await deployment.merge(
            WORKLOADS, name, team, asks, patch_type=PatchType.APPLY, subresource="status", field_manager="operator"
        )
        await becomes(deployment, JOBS, "train", team, lambda found: found["spec"]["suspend"])
        evicted = await workload_of(deployment, team, has("Evicted", "True", "DeactivatedDueToOperator"))
        assert evicted["spec"]["active"] is False
        message = next(each["message"] for each in evicted["status"]["conditions"] if each["type"] == "Evicted")
        assert message == "The workload is deactivated due to the budget is spent"


async def test_pods_that_do_not_get_ready_are_requeued_and_in_the_end_switched_off(deployment: Deployment) -> None:
    """waitForPodsReady: once more after a backoff, then deactivated; and the Job is deleted after its retention."""
    team = deployment.fresh("team")
    slow = {
        "timeout": "2s",
        "requeuingStrategy": {"backoffBaseSeconds": 1, "backoffMaxSeconds": 1, "backoffLimitCount": 1},
    }
    kept = {"workloads": {"afterDeactivatedByKueue": "4s"}}
    with configured(waitForPodsReady=slow, objectRetentionPolicies=kept) as bridge:
        async with deployment.cell(team, bridge=bridge):
            await deployment.apply(*furnished(team, cpu="100m"), small(team, "slow", start_ms=LONG_MS))
            started = await workload_of(deployment, team, has("Admitted"), has("PodsReady", "False", "WaitForStart"))
            assert condition(started, "Evicted")[0] != "True"
            evicted = await workload_of(deployment, team, has("Evicted", "True", "PodsReadyTimeout"))
            assert evicted["status"]["requeueState"]["count"] == 1
            assert evicted["status"]["schedulingStats"]["evictions"][0] == {
                "reason": "PodsReadyTimeout",
                "underlyingCause": "WaitForStart",
                "count": 1,
            }
            await workload_of(deployment, team, has("Admitted"), has("Evicted", "False", "QuotaReserved"))
            final = await workload_of(
                deployment, team, has("Evicted", "True", "DeactivatedDueToRequeuingLimitExceeded")
            )
            assert "requeueState" not in final["status"]

            async def is_gone() -> bool:
                try:
                    await deployment.get(JOBS, "slow", team)
                except ApiError as error:
                    return error.is_not_found
                return False

            await until(is_gone)


async def empty(deployment: Deployment) -> None:
    """Delete every Job, also those of other tests: all that may hold quota are waited for."""
    for each in await deployment.all(JOBS):
        meta = each["metadata"]
        await deployment.client.delete(JOBS, meta["name"], meta["namespace"], propagation=Propagation.BACKGROUND)

    left: list[Json] = []

    async def is_empty() -> bool:
        left[:] = [each for each in await deployment.all(WORKLOADS) if not is_true(each, "Finished")]
        return not left

    await until(is_empty, lambda: left)


async def test_pods_that_are_ready_let_the_next_one_in(deployment: Deployment) -> None:
    """blockAdmission: one at a time, though there is quota for all; a finished Workload is deleted after its time."""
    team = deployment.fresh("team")
    one_by_one = {"timeout": "10m", "blockAdmission": True}
    kept = {"workloads": {"afterFinished": "1s"}}
    with configured(waitForPodsReady=one_by_one, objectRetentionPolicies=kept) as bridge:
        async with deployment.cell(team, bridge=bridge) as cell:
            await empty(deployment)
            await deployment.apply(*furnished(team, cpu="1"), small(team, "first", start_ms=2_000, run_ms=8_000))
            await becomes(deployment, JOBS, "first", team, lambda found: not found["spec"]["suspend"])
            await deployment.apply(small(team, "second", run_ms=500))

            async def is_told_to_wait() -> bool:
                found = await deployment.all(WORKLOADS, team)
                return any(condition(each, "QuotaReserved") == ("False", "WaitingForPodsReady") for each in found)

            await until(is_told_to_wait)
            await runs(deployment, team, "first")
            first = await workload_of_job(deployment, team, "first")
            await becomes(deployment, WORKLOADS, first["metadata"]["name"], team, has("PodsReady", "True", "Started"))
            await becomes(deployment, JOBS, "second", team, has("Complete"))

            async def all_gone() -> bool:
                return not await deployment.all(WORKLOADS, team)

            await becomes(deployment, JOBS, "first", team, has("Complete"))
            await until(all_gone)
            await until(lambda: cell.holds(lambda state: not state.workloads))


async def test_a_job_grows_while_it_runs(deployment: Deployment) -> None:
    """An elastic Job that is scaled up keeps its pod; the new ones wait behind a gate until a slice is admitted."""
    team = deployment.fresh("team")
    grows = small(team, "train", annotations={"kueue.x-k8s.io/elastic-job": "true"})
    grows["spec"]["completions"] = 3
    async with deployment.cell(team):
        await deployment.apply(*furnished(team, cpu="300m"), grows)
        await runs(deployment, team, "train")
        (before,) = [pod["metadata"]["uid"] for pod in await deployment.all(PODS, team)]
        first = await workload_of_job(deployment, team, "train")
        await deployment.merge(JOBS, "train", team, {"spec": {"parallelism": 3}})
        await runs(deployment, team, "train", 3)
        assert before in {pod["metadata"]["uid"] for pod in await deployment.all(PODS, team)}
        replaced = has("Finished", "True", "WorkloadSliceReplaced")
        await becomes(deployment, WORKLOADS, first["metadata"]["name"], team, replaced)
        (second,) = [each for each in await deployment.all(WORKLOADS, team) if condition(each, "Finished")[0] != "True"]
        (assignment,) = second["status"]["admission"]["podSetAssignments"]
        assert (assignment["count"], assignment["resourceUsage"]) == (3, {"cpu": "300m"})


def two_flavors(team: str, *flavors: str) -> Json:
    """A ClusterQueue that tries each of its flavors at once."""
    quotas = [{"name": name, "resources": [{"name": "cpu", "nominalQuota": "100m"}]} for name in flavors]
    group = {"coveredResources": ["cpu"], "flavors": quotas}
    policy = {"migration": {"mode": "TryPreferredFlavors"}}
    queue = cluster_queue(team, flavors[0])
    queue["spec"] |= {"resourceGroups": [group], "concurrentAdmissionPolicy": policy}
    return queue


async def test_a_workload_is_tried_in_every_flavor_at_once(deployment: Deployment) -> None:
    """With ConcurrentAdmission: a variant a flavor, the first admitted runs; that of a flavor that goes, goes."""
    team = deployment.fresh("team")
    reserved, spot = f"{team}-reserved", f"{team}-spot"
    with configured(featureGates={"ConcurrentAdmission": True}) as bridge:
        async with deployment.cell(team, bridge=bridge):
            await deployment.apply(namespace(team), flavor(reserved), flavor(spot), two_flavors(team, reserved, spot))
            await deployment.apply(local_queue(team, team), small(team, "train"))
            await runs(deployment, team, "train")
            found = await deployment.all(WORKLOADS, team)
            assert len(found) == 3, "the parent and a variant for each flavor"
            await deployment.apply(two_flavors(team, reserved))

            async def one_is_gone() -> bool:
                return len(await deployment.all(WORKLOADS, team)) == 2

            await until(one_is_gone)
            await runs(deployment, team, "train")


async def test_a_topology_is_held_while_a_flavor_uses_it(deployment: Deployment) -> None:
    """It gets the finalizer that keeps it, when it is deleted, until the last flavor with it is gone."""
    team = "racks"
    levels = [{"nodeLabel": "example.com/rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    topology = {"apiVersion": KUEUE, "kind": "Topology", "metadata": {"name": team}, "spec": {"levels": levels}}
    async with deployment.cell(team):
        await deployment.apply(topology, flavor(team, nodeLabels={"pool": team}, topologyName=team))
        held = "kueue.x-k8s.io/resource-in-use"
        await becomes(deployment, TOPOLOGIES, team, None, lambda found: held in found["metadata"].get("finalizers", ()))
