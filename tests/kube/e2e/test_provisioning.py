"""
Two-phase admission with ProvisioningRequests on a real control plane; the test acts as the cluster autoscaler.

The definition of ProvisioningRequests is that of the autoscaler's own Go module, in the version that Kueue uses.
"""

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.kube.e2e.cells import KUEUE, Deployment, Json
from tests.kube.e2e.objects import cluster_queue, condition, flavor, job, local_queue, namespace
from tests.kube.e2e.seeing import becomes, has, workload_of
from tests.support.waiting import until

from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.resources import (
    ADMISSION_CHECKS,
    CLUSTER_QUEUES,
    JOBS,
    POD_TEMPLATES,
    PROVISIONING_CONFIGS,
    PROVISIONING_REQUESTS,
)
from headgate.testing.control_plane.samples import definitions, released_samples

pytestmark = [pytest.mark.anyio, pytest.mark.kube]

CLASS = "queued-provisioning.example.com"
CONSUMES = "autoscaling.x-k8s.io/consume-provisioning-request"


def definition() -> Path:
    """The definition of ProvisioningRequests."""
    (found,) = definitions("cluster-autoscaler")
    return found


def provisioned(team: str, **spec: Any) -> list[Json]:
    """A check of that name with its configuration."""
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": team}
    controller = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
    return [
        {
            "apiVersion": KUEUE,
            "kind": "ProvisioningRequestConfig",
            "metadata": {"name": team},
            "spec": {"provisioningClassName": CLASS, **spec},
        },
        {"apiVersion": KUEUE, "kind": "AdmissionCheck", "metadata": {"name": team}, "spec": controller},
    ]


def furnished(team: str) -> list[Json]:
    """A namespace with a queue that has the check, on nodes with a label."""
    strategy = {"admissionChecks": [{"name": team}]}
    return [
        namespace(team),
        flavor(team, nodeLabels={"kubernetes.io/os": "linux"}),
        cluster_queue(team, team, admissionChecksStrategy=strategy),
        local_queue(team, team),
    ]


def says(kind: str, status: str = "True", message: str = "") -> Json:
    """A condition of a ProvisioningRequest."""
    at = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": status, "reason": kind, "message": message, "lastTransitionTime": at}


async def answer(deployment: Deployment, request: Json, *conditions: Json, **status: Any) -> None:
    """What the cluster autoscaler writes."""
    meta = request["metadata"]
    body = {"status": {"conditions": list(conditions), **status}}
    await deployment.merge(PROVISIONING_REQUESTS, meta["name"], meta["namespace"], body, subresource="status")


async def request_of(deployment: Deployment, team: str, attempt: int) -> Json:
    """Wait for the only request of a namespace, in this attempt."""
    found: list[Json] = []

    async def holds() -> bool:
        nonlocal found
        found = await deployment.all(PROVISIONING_REQUESTS, team)
        return len(found) == 1 and found[0]["metadata"]["name"].endswith(f"-{team}-{attempt}")

    await until(holds, lambda: [each["metadata"]["name"] for each in found])
    return found[0]


def said(found: Json) -> tuple[str, str]:
    """State and message of the only check of a Workload."""
    (check,) = found.get("status", {}).get("admissionChecks") or [{"state": "", "message": ""}]
    return check["state"], check["message"]


async def none_left(deployment: Deployment, team: str) -> None:
    async def holds() -> bool:
        return not await deployment.all(PROVISIONING_REQUESTS, team)

    await until(holds)


async def test_a_job_waits_for_its_capacity_and_is_retried(deployment: Deployment) -> None:
    """
    Without the definition of ProvisioningRequests its check is inactive, and says so; with it the check is active.

    Then: requested, the expected time shown, failed and evicted, requested again after the backoff, provisioned and
    run with the annotations and selectors of the capacity; finished, and the request deleted.
    """
    crd = definition()
    team = deployment.fresh("team")
    retries = {"backoffLimitCount": 3, "backoffBaseSeconds": 1, "backoffMaxSeconds": 2}
    updates = {"nodeSelector": [{"key": "kubernetes.io/os", "valueFromProvisioningClassDetail": "System"}]}
    await deployment.plane.kubectl("label", "node", "--all", "kubernetes.io/os=linux", "--overwrite")
    async with deployment.cell(team):
        await deployment.apply(*furnished(team), *provisioned(team, retryStrategy=retries, podSetUpdates=updates))
        check = await becomes(deployment, ADMISSION_CHECKS, team, None, has("Active", "False"))
        assert condition(check, "Active") == ("False", "ProvisioningRequestNotServed")
        await becomes(deployment, CLUSTER_QUEUES, team, None, has("Active", "False", "AdmissionCheckInactive"))
        await deployment.plane.kubectl("apply", "--server-side", "-f", str(crd))
        await becomes(deployment, ADMISSION_CHECKS, team, None, has("Active", "True", "Active"))

        passed = {"provreq.kueue.x-k8s.io/ValidUntilSeconds": "60"}
        await deployment.apply(job(team, "train", cpu="100m", pods=2, annotations=passed))
        first = await request_of(deployment, team, 1)
        workload = await workload_of(deployment, team, has("QuotaReserved"))
        assert first["spec"]["parameters"] == {"ValidUntilSeconds": "60"}
        (pods,) = first["spec"]["podSets"]
        owned = {"kind": "ProvisioningRequest", "uid": first["metadata"]["uid"]}

        def handed_over(found: Json) -> bool:
            return [each["kind"] for each in found["metadata"]["ownerReferences"]] == [owned["kind"]]

        name = pods["podTemplateRef"]["name"]
        template = await becomes(deployment, POD_TEMPLATES, name, team, handed_over)
        assert template["metadata"]["ownerReferences"][0]["uid"] == owned["uid"]
        assert template["template"]["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
        assert pods["count"] == 2

        await answer(deployment, first, says("Accepted"), says("Provisioned", "False", "ETA: 1 minute"))
        await workload_of(deployment, team, lambda it: said(it) == ("Pending", "ETA: 1 minute"))
        await answer(deployment, first, says("Failed", message="out of stock"))
        message = f'Evicted due to AdmissionCheck in Retry state: "{team}" (Retrying after failure: out of stock)'
        second = await request_of(deployment, team, 2)
        again = await workload_of(deployment, team, has("QuotaReserved"), lambda it: said(it) == ("Pending", ""))
        assert again["status"]["admissionChecks"][0]["retryCount"] == 1
        assert again["metadata"]["uid"] == workload["metadata"]["uid"]
        assert message in await notes(deployment, team)

        capacity = says("Provisioned", message="capacity is there")
        await answer(deployment, second, says("Accepted"), capacity, provisioningClassDetails={"System": "linux"})
        await workload_of(deployment, team, lambda it: said(it) == ("Ready", "capacity is there"))
        running = await becomes(deployment, JOBS, "train", team, lambda it: not it["spec"]["suspend"])
        injected = running["spec"]["template"]
        assert injected["metadata"]["annotations"][CONSUMES] == second["metadata"]["name"]
        assert injected["spec"]["nodeSelector"] == {"kubernetes.io/os": "linux"}
        await workload_of(deployment, team, has("Finished"))
        await none_left(deployment, team)
        assert await told(deployment, team) >= {
            "ProvisioningRequestCreated",
            "AdmissionCheckUpdated",
            "EvictedDueToAdmissionCheck",
        }


async def notes(deployment: Deployment, team: str) -> str:
    """The notes of the Events in a namespace."""
    notes = "jsonpath={.items[*].note}"
    return (await deployment.plane.kubectl("get", "events.events.k8s.io", "-n", team, "-o", notes)).stdout


async def told(deployment: Deployment, team: str) -> set[str]:
    """The reasons of the Events in a namespace."""
    found = await deployment.plane.kubectl(
        "get", "events.events.k8s.io", "-n", team, "-o", "jsonpath={.items[*].reason}"
    )
    return set(found.stdout.split())


async def test_what_others_do_to_requests_and_templates_is_made_good(deployment: Deployment) -> None:
    """
    A request that somebody deletes is made again; a PodTemplate that no request has is deleted.

    A configuration that changes replaces the request; capacity that is revoked ends the running workload.
    """
    crd = definition()
    team = deployment.fresh("team")
    await deployment.plane.kubectl("apply", "--server-side", "-f", str(crd))
    async with deployment.cell(team):
        await deployment.apply(*furnished(team), *provisioned(team))
        await becomes(deployment, ADMISSION_CHECKS, team, None, has("Active"))
        await deployment.apply(job(team, "train", cpu="100m", run_ms=600_000))
        first = await request_of(deployment, team, 1)
        workload = await workload_of(deployment, team, has("QuotaReserved"))
        owner = {
            "apiVersion": KUEUE,
            "kind": "Workload",
            "name": workload["metadata"]["name"],
            "uid": workload["metadata"]["uid"],
            "controller": True,
        }
        stray = {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {
                "name": "ppt-stray",
                "namespace": team,
                "labels": {"kueue.x-k8s.io/managed": "true"},
                "ownerReferences": [owner],
            },
            "template": {"spec": {"containers": [{"name": "c", "image": "x"}]}},
        }
        await deployment.apply(stray)

        async def stray_is_gone() -> bool:
            try:
                await deployment.get(POD_TEMPLATES, "ppt-stray", team)
            except ApiError as error:
                return error.status == 404
            return False

        await until(stray_is_gone)
        await deployment.client.delete(PROVISIONING_REQUESTS, first["metadata"]["name"], team)

        async def is_another() -> bool:
            found = await deployment.all(PROVISIONING_REQUESTS, team)
            return [each["metadata"]["uid"] for each in found] not in ([], [first["metadata"]["uid"]])

        await until(is_another)
        await deployment.merge(PROVISIONING_CONFIGS, team, None, {"spec": {"parameters": {"zone": "a"}}})

        async def has_parameter() -> bool:
            found = await deployment.all(PROVISIONING_REQUESTS, team)
            return [each["spec"].get("parameters") for each in found] == [{"zone": "a"}]

        await until(has_parameter)
        last = await request_of(deployment, team, 1)
        await answer(deployment, last, says("Accepted"), says("Provisioned"))
        await becomes(deployment, JOBS, "train", team, lambda it: not it["spec"]["suspend"])
        await answer(deployment, last, says("Provisioned"), says("CapacityRevoked", message="the nodes are gone"))
        over = await workload_of(deployment, team, has("Evicted", "True", "DeactivatedDueToAdmissionCheck"))
        assert over["spec"]["active"] is False
        await none_left(deployment, team)


async def test_kueues_documented_sample_behaves_as_documented(deployment: Deployment) -> None:
    """Its objects in v1beta1, its Job with GPUs: quota reserved, requested for the GPUs, run when it is provisioned."""
    folder = released_samples() / "provisioning"
    crd = definition()
    plane = deployment.plane
    await plane.kubectl("apply", "--server-side", "-f", str(crd))
    async with deployment.cell(deployment.fresh("sample")):
        setup, jobs = folder / "provisioning-setup.yaml", folder / "sample-job.yaml"
        text = (await anyio.Path(setup).read_text()).replace(
            "  admissionChecks:\n  - sample-prov\n",
            "  admissionChecksStrategy:\n    admissionChecks:\n    - name: sample-prov\n",
        )
        await plane.kubectl("apply", "-f", "-", stdin=text.replace("kueue.x-k8s.io/v1beta1", KUEUE))
        try:
            await becomes(deployment, CLUSTER_QUEUES, "cluster-queue", None, has("Active"))
            await plane.kubectl("create", "-f", str(jobs))
            waiting = await workload_of(deployment, "default", has("QuotaReserved"))
            assert said(waiting) == ("Pending", "")
            found: list[Json] = []

            async def requested() -> bool:
                nonlocal found
                found = await deployment.all(PROVISIONING_REQUESTS, "default")
                return len(found) == 1

            await until(requested)
            assert found[0]["spec"]["provisioningClassName"] == "queued-provisioning.gke.io"
            assert [each["count"] for each in found[0]["spec"]["podSets"]] == [3]
            await answer(deployment, found[0], says("Accepted"), says("Provisioned"))
            await workload_of(deployment, "default", has("Admitted"))
            (made,) = await deployment.all(JOBS, "default")
            name = made["metadata"]["name"]
            running = await becomes(deployment, JOBS, name, "default", lambda it: not it["spec"]["suspend"])
            annotations = running["spec"]["template"]["metadata"]["annotations"]
            assert annotations[CONSUMES] == found[0]["metadata"]["name"]
        finally:
            for kind in ("job", "workload"):
                await plane.kubectl("delete", "--ignore-not-found", kind, "--all", "-n", "default")
            await plane.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", str(setup))
