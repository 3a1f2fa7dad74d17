"""Two-phase admission with ProvisioningRequests in the whole system; the test plays the cluster autoscaler."""

from typing import Any

import pytest
from tests.simulation.test_seeds import faults_of
from tests.support.autoscaling import (
    CHECK,
    CLASS,
    CONFIG,
    Autoscaler,
    Json,
    check_in,
    condition_in,
    config_manifest,
    delete,
    job_manifest,
    kueue,
    listed,
    node_manifest,
    path_of,
    provisioned_cell,
    queue_manifests,
    requests_in,
    says,
    templates_in,
    workload_in,
)
from tests.support.forging import verified

from headgate.adapters.log import LogEntry
from headgate.testing.world.world import NO_FAULTS

START_MS = 1_700_000_000_000
PROVISIONED = [says("Accepted"), says("Provisioned", message="capacity is there")]


def provisioned(_request: Json) -> list[Json]:
    """The answer of an autoscaler that always has capacity."""
    return PROVISIONED


def silent(_request: Json) -> list[Json]:
    """The answer of an autoscaler that has not looked yet."""
    return []


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_a_job_runs_once_its_capacity_is_provisioned(seed: int | None) -> None:
    """One request, its template owned by it, annotations and selectors on the pods; all gone when the Job is over."""
    config = config_manifest(
        managedResources=["example.com/gpu"],
        parameters={"maxRunDuration": "3600"},
        podSetUpdates={
            "nodeSelector": [{"key": "pool", "valueFromProvisioningClassDetail": "Pool"}],
        },
    )
    world = provisioned_cell(config=config, faults=NO_FAULTS if seed is None else faults_of(seed), seed=seed or 0)
    seen: dict[str, Any] = {}

    def answer(request: Json) -> list[Json]:
        seen.setdefault("request", request)
        return PROVISIONED

    autoscaler = Autoscaler(world, answer)
    autoscaler.details = {"Pool": "new", "Unused": "x"}
    world.create(job_manifest(annotations={"provreq.kueue.x-k8s.io/ValidUntilSeconds": "60"}))
    autoscaler.run(START_MS + 150_000)
    request, workload = seen["request"], workload_in(world)
    name = f"{workload['metadata']['name']}-{CHECK}-1"
    assert request["metadata"]["name"] == name
    assert request["spec"] == {
        "provisioningClassName": CLASS,
        "parameters": {"maxRunDuration": "3600", "ValidUntilSeconds": "60"},
        "podSets": [{"podTemplateRef": {"name": f"ppt-{name}-main"}, "count": 2}],
    }
    (owner,) = request["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("Workload", workload["metadata"]["uid"], True)
    check = check_in(world)
    assert (check["state"], check["message"]) == ("Ready", "capacity is there")
    annotations = {
        "autoscaling.x-k8s.io/consume-provisioning-request": name,
        "autoscaling.x-k8s.io/provisioning-class-name": CLASS,
    }
    assert check["podSetUpdates"] == [{"name": "main", "annotations": annotations, "nodeSelector": {"pool": "new"}}]
    (job,) = listed(world, "/apis/batch/v1/jobs")
    assert condition_in(job, "Complete")[0] == "True"
    assert condition_in(workload, "Finished")[:2] == ("True", "Succeeded")
    assert not requests_in(world)
    assert not templates_in(world)


def test_the_pod_template_is_handed_over_to_its_request() -> None:
    """It is on the flavor of the reservation, and deleted with the request."""
    world = provisioned_cell()
    world.create(job_manifest())
    Autoscaler(world, silent).run(START_MS + 10_000)
    (request,), (template,) = requests_in(world), templates_in(world)
    (owner,) = template["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("ProvisioningRequest", request["metadata"]["uid"])
    assert template["metadata"]["labels"] == {"kueue.x-k8s.io/managed": "true"}
    assert template["template"]["metadata"]["labels"]["app"] == "train"
    assert template["template"]["spec"]["nodeSelector"] == {"pool": "new"}
    (job,) = listed(world, "/apis/batch/v1/jobs")
    assert job["spec"]["suspend"] is True
    assert (check_in(world)["state"], check_in(world).get("message", "")) == ("Pending", "")


def test_a_workload_without_managed_resources_needs_no_request() -> None:
    """Its check is Ready at once, and says why."""
    world = provisioned_cell(config=config_manifest(managedResources=["example.com/gpu"]))
    world.create(job_manifest(gpu=False))
    autoscaler = Autoscaler(world, silent)
    autoscaler.run(START_MS + 60_000)
    assert (check_in(world)["state"], check_in(world)["message"]) == (
        "Ready",
        "the provisioning request is not needed",
    )
    assert not requests_in(world)
    assert condition_in(workload_in(world), "Finished")[0] == "True"


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_failed_request_is_tried_again_until_the_limit_is_reached(seed: int | None) -> None:
    """Each failure evicts, with a longer wait; the next request has the next number; the last one deactivates."""
    retries = {"backoffLimitCount": 2, "backoffBaseSeconds": 10, "backoffMaxSeconds": 15}
    faults = NO_FAULTS if seed is None else faults_of(seed)
    world = provisioned_cell(config=config_manifest(retryStrategy=retries), faults=faults, seed=seed or 0)
    asked: list[str] = []

    def fail(request: Json) -> list[Json]:
        asked.append(request["metadata"]["name"].rpartition("-")[2])
        return [says("Failed", message="out of stock")]

    world.create(job_manifest())
    Autoscaler(world, fail).run(START_MS + 200_000)
    found = workload_in(world)
    assert asked == ["1", "2", "3"]
    assert found["spec"]["active"] is False
    assert condition_in(found, "Evicted") == (
        "True",
        "DeactivatedDueToAdmissionCheck",
        f'The workload is deactivated due to AdmissionCheck in Rejected state: "{CHECK}" (out of stock)',
    )
    assert not requests_in(world)
    (job,) = listed(world, "/apis/batch/v1/jobs")
    assert job["spec"]["suspend"] is True


def test_a_request_that_others_delete_is_made_again() -> None:
    """While it is waited for; the name is the same."""
    world = provisioned_cell()
    world.create(job_manifest())
    autoscaler = Autoscaler(world, silent)
    autoscaler.run(START_MS + 5_000)
    (first,) = requests_in(world)
    delete(world, path_of(first))
    autoscaler.run(START_MS + 10_000)
    (second,) = requests_in(world)
    assert second["metadata"]["name"] == first["metadata"]["name"]
    assert second["metadata"]["uid"] != first["metadata"]["uid"]
    autoscaler.set(second, PROVISIONED)
    autoscaler.run(START_MS + 60_000)
    assert condition_in(workload_in(world), "Finished")[0] == "True"


def test_a_changed_configuration_replaces_the_request() -> None:
    """Class and parameters of a request cannot change: the old one is deleted and a new one made."""
    world = provisioned_cell()
    world.create(job_manifest())
    autoscaler = Autoscaler(world, silent)
    autoscaler.run(START_MS + 5_000)
    world.apply(config_manifest(provisioningClassName="another.example.com"))
    autoscaler.run(START_MS + 10_000)
    (request,) = requests_in(world)
    assert request["spec"]["provisioningClassName"] == "another.example.com"


def test_a_check_without_its_configuration_is_inactive_until_that_is_there() -> None:
    """Kueue's reason and message; the ClusterQueue admits nothing meanwhile."""
    world = provisioned_cell()
    config = f"/apis/kueue.x-k8s.io/v1beta2/provisioningrequestconfigs/{CONFIG}"
    autoscaler = Autoscaler(world, provisioned)
    autoscaler.run(START_MS + 5_000)
    (check,) = listed(world, "/apis/kueue.x-k8s.io/v1beta2/admissionchecks")
    assert condition_in(check, "Active") == ("True", "Active", "The admission check is active")
    delete(world, config)
    autoscaler.run(START_MS + 10_000)
    (check,) = listed(world, "/apis/kueue.x-k8s.io/v1beta2/admissionchecks")
    assert condition_in(check, "Active") == (
        "False",
        "BadParametersRef",
        f'ProvisioningRequestConfig.kueue.x-k8s.io "{CONFIG}" not found',
    )
    world.create(job_manifest())
    autoscaler.run(START_MS + 15_000)
    assert condition_in(workload_in(world), "QuotaReserved")[0] != "True"
    world.apply(config_manifest())
    autoscaler.run(START_MS + 60_000)
    assert condition_in(workload_in(world), "Finished")[0] == "True"


def test_revoked_capacity_ends_a_running_workload() -> None:
    """It is deactivated, as its pods would wait for nodes that are gone."""
    world = provisioned_cell()
    world.create(job_manifest(run_ms=10_000_000))
    autoscaler = Autoscaler(world, provisioned)
    autoscaler.run(START_MS + 5_000)
    (request,) = requests_in(world)
    autoscaler.set(request, [*PROVISIONED, says("CapacityRevoked", message="the nodes are gone")])
    autoscaler.run(START_MS + 30_000)
    found = workload_in(world)
    assert found["spec"]["active"] is False
    assert condition_in(found, "Evicted")[1] == "DeactivatedDueToAdmissionCheck"
    assert not requests_in(world)


def test_topology_domains_are_chosen_on_the_nodes_that_were_provisioned() -> None:
    """Until then they are delayed; a second pass finds them once the check is Ready, and the pods go there."""
    rack = "example.com/rack"
    racks = kueue("Topology", "racks", {"levels": [{"nodeLabel": rack}, {"nodeLabel": "kubernetes.io/hostname"}]})
    flavor = kueue("ResourceFlavor", "new-nodes", {"nodeLabels": {"pool": "new"}, "topologyName": "racks"})
    others = [each for each in queue_manifests() if each["kind"] != "ResourceFlavor"]
    world = provisioned_cell(racks, flavor, *others)
    job = job_manifest(run_ms=5_000)
    job["spec"]["template"]["metadata"]["annotations"]["kueue.x-k8s.io/podset-required-topology"] = rack
    world.create(job)
    autoscaler = Autoscaler(world, silent)
    autoscaler.run(START_MS + 5_000)
    (assignment,) = workload_in(world)["status"]["admission"]["podSetAssignments"]
    assert assignment["delayedTopologyRequest"] == "Pending"
    assert "topologyAssignment" not in assignment
    (request,) = requests_in(world)
    for name in ("a-1", "a-2"):
        world.apply(node_manifest(name, **{rack: "a", "kubernetes.io/hostname": name}))
    autoscaler.set(request, PROVISIONED)
    autoscaler.run(START_MS + 8_000)
    found = workload_in(world)
    assert condition_in(found, "Admitted")[0] == "True"
    (assignment,) = found["status"]["admission"]["podSetAssignments"]
    assert assignment["delayedTopologyRequest"] == "Ready"
    assert assignment["topologyAssignment"]["levels"] == ["kubernetes.io/hostname"]
    autoscaler.run(START_MS + 60_000)
    assert condition_in(workload_in(world), "Finished")[:2] == ("True", "Succeeded")


@pytest.mark.parametrize("seed", [None, 1])
def test_all_of_it_is_decided_again_as_it_was(seed: int | None) -> None:
    """Checks, requests and withdrawals by the queue manager; what the binder created was requested."""
    retries = {"backoffLimitCount": 1, "backoffBaseSeconds": 5}
    entries: list[LogEntry] = []
    faults = NO_FAULTS if seed is None else faults_of(seed)
    world = provisioned_cell(config=config_manifest(retryStrategy=retries), faults=faults, seed=seed or 0)
    world._sink = lambda seq, subject, time_ms, payload: entries.append(LogEntry(seq, subject, time_ms, payload))
    world.create(job_manifest())
    answers = [[says("Failed", message="no")], PROVISIONED]
    Autoscaler(world, lambda _: answers.pop(0) if answers else PROVISIONED).run(START_MS + 150_000)
    result = verified(tuple(entries))
    assert result.differences == ()
    assert result.compared["provisioning requests"] >= 2
    assert result.compared["queue decisions"] > 0


def test_an_expected_time_is_shown_while_the_request_is_accepted() -> None:
    """The message of the condition Provisioned is that of the check, and the reason it waits for."""
    world = provisioned_cell()
    world.create(job_manifest())
    eta = [says("Accepted"), says("Provisioned", "False", "ETA: 2 minutes")]
    autoscaler = Autoscaler(world, lambda _: eta)
    autoscaler.run(START_MS + 10_000)
    assert (check_in(world)["state"], check_in(world)["message"]) == ("Pending", "ETA: 2 minutes")
