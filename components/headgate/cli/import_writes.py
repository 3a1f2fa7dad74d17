"""
The writes of `headgate import`, for one object: its Workload, the Workload's admission, its labels, in this order.

Each is safe to repeat: a Workload that is there is kept, an admission that is there is left as it is, labels are
merged. An object that is deleted meanwhile needs nothing any more.
"""

from typing import Any, Final

import msgspec

from headgate.adapters.kubernetes.client import KubeClient, PatchType
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.resources import WORKLOADS, of_kind
from headgate.core.importing.checking import Importable, Refused, Skipped, Verdict
from headgate.core.status.workload_status import ADMISSION_MANAGER

FIELD_MANAGER: Final = "headgate-import"

Json = dict[str, Any]


async def check_writes(client: KubeClient, each: Importable) -> Verdict:
    """Let the API server check the writes and keep nothing: what it refuses is known before anything is done."""
    try:
        if not each.is_admitted:
            await _create(client, each, dry_run=True)
        await _label(client, each, dry_run=True)
    except ApiError as error:
        return _verdict(each, error)
    return each


async def write_import(client: KubeClient, each: Importable) -> Verdict:
    """Import the object; itself, or what kept it from being imported. Raises TransportError."""
    try:
        if not each.is_admitted:
            await _create(client, each, dry_run=False)
            await _admit(client, each)
        await _label(client, each, dry_run=False)
    except ApiError as error:
        return _verdict(each, error)
    return each


def _verdict(each: Importable, error: ApiError) -> Verdict:
    """What an answer says about an object. Raises the error when it says something about the server."""
    if error.is_not_found:
        return Skipped(object=each.object, why="it is gone")
    if error.is_access_denied or error.status in (409, 429) or error.status >= 500:
        raise error
    return Refused(object=each.object, why=f"the API server refuses it: {error.message}")


async def _create(client: KubeClient, each: Importable, *, dry_run: bool) -> None:
    try:
        await client.create(WORKLOADS, each.workload, each.namespace, field_manager=FIELD_MANAGER, dry_run=dry_run)
    except ApiError as error:
        if error.reason != "AlreadyExists":
            raise


async def _admit(client: KubeClient, each: Importable) -> None:
    """Write the admission, unless somebody has: a Workload that was created meanwhile may be admitted already."""
    name = each.workload["metadata"]["name"]
    found = msgspec.json.decode(await client.get(WORKLOADS, name, each.namespace))
    if (found.get("status") or {}).get("admission"):
        return
    generation = found["metadata"]["generation"]
    conditions = [{**condition, "observedGeneration": generation} for condition in each.status["conditions"]]
    body = {
        "apiVersion": WORKLOADS.api_version,
        "kind": WORKLOADS.kind,
        "metadata": {"name": name, "namespace": each.namespace, "uid": found["metadata"]["uid"]},
        "status": {**each.status, "conditions": conditions},
    }
    await client.patch(
        WORKLOADS,
        name,
        body,
        each.namespace,
        patch_type=PatchType.APPLY,
        subresource="status",
        field_manager=ADMISSION_MANAGER,
        force=True,
    )


async def _label(client: KubeClient, each: Importable, *, dry_run: bool) -> None:
    owner = each.workload["metadata"]["ownerReferences"][0]
    # The uid: an object of the same name that was created since is another one.
    body = {"metadata": {"uid": owner["uid"], "labels": each.labels}}
    await client.patch(
        of_kind(each.kind), each.name, body, each.namespace, field_manager=FIELD_MANAGER, dry_run=dry_run
    )
