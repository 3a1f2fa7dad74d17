"""What the controller of an admission check does."""

from typing import Any

from tests.kube.e2e.cells import KUEUE, Deployment, Json

from headgate.adapters.kubernetes.client import PatchType
from headgate.adapters.kubernetes.resources import ADMISSION_CHECKS, WORKLOADS


def check(name: str) -> Json:
    return {
        "apiVersion": KUEUE,
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": "example.com/check"},
    }


async def active(deployment: Deployment, name: str) -> None:
    """Say that the check's controller is there."""
    condition = {
        "type": "Active",
        "status": "True",
        "reason": "Here",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"status": {"conditions": [condition]}}
    await deployment.merge(ADMISSION_CHECKS, name, None, status, subresource="status")


async def answer(
    deployment: Deployment, workload: Json, state: str, at: str = "2026-01-01T00:00:00Z", **more: Any
) -> None:
    """Write the state of a Workload's only check, as the manager of that field."""
    name, team = workload["metadata"]["name"], workload["metadata"]["namespace"]
    (before,) = workload["status"]["admissionChecks"]
    said = {**before, "state": state, "message": f"said {state}", "lastTransitionTime": at, **more}
    body = {"apiVersion": KUEUE, "kind": "Workload", "metadata": {"name": name}, "status": {"admissionChecks": [said]}}
    await deployment.merge(
        WORKLOADS,
        name,
        team,
        body,
        patch_type=PatchType.APPLY,
        subresource="status",
        field_manager="check-controller",
        force=True,
    )


def check_state(found: Json) -> str:
    """The state of a Workload's only check; empty when it has none."""
    checks = found.get("status", {}).get("admissionChecks") or [{"state": ""}]
    return str(checks[0]["state"])
