"""
What the cases about pods and Jobs share: their manifests, refusals without the values they quote, statuses as lines.

A Job's status is written as `counts | condition reason | ...`, so that what a watch saw of a Job reads as its story.
"""

import asyncio
import re
from typing import Any

from tests.contract.cases import STRATEGIC_PATCH, batch, core

JsonObject = dict[str, Any]
NODE = "node-0"
TRIES = 400
UNKNOWN_UID = "9d9c1c4e-0000-4000-a000-000000000000"

_QUOTED = re.compile(r"Invalid value: (?:\{.*?\}|\[.*?\]|\"(?:[^\"\\]|\\.)*\"|[^:\s]+): ", re.DOTALL)


def pod(name: str = "p", *, meta: JsonObject | None = None, **spec: Any) -> JsonObject:
    """A pod with one container; fields of its spec as arguments."""
    containers = [{"name": "c", "image": "i"}]
    return {"metadata": {"name": name, **(meta or {})}, "spec": {"containers": containers, **spec}}


def job(
    name: str = "j", *, runs: JsonObject | None = None, template: JsonObject | None = None, **spec: Any
) -> JsonObject:
    """A Job with one container; `runs` defines what its pods do, `template` adds to their spec."""
    inner = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}], **(template or {})}
    whole: JsonObject = {"spec": inner}
    if runs is not None:
        whole["metadata"] = {"annotations": {f"headgate.dev/{key}": str(value) for key, value in runs.items()}}
    return {"metadata": {"name": name}, "spec": {"template": whole, **spec}}


async def create_pod(server, namespace: str, name: str = "p", **given: Any) -> JsonObject:
    """Create a pod and return it."""
    answer = await server.call("POST", core(namespace, "pods"), pod(name, **given))
    assert answer.status == 201, answer.json
    return answer.json


async def create_job(server, namespace: str, name: str = "j", **given: Any) -> JsonObject:
    """Create a Job and return it."""
    answer = await server.call("POST", batch(namespace), job(name, **given))
    assert answer.status == 201, answer.json
    return answer.json


async def patch(server, path: str, body: Any, how: str = STRATEGIC_PATCH, **query: str) -> Any:
    """Patch an object; whatever the answer is, it is returned."""
    return await server.call("PATCH", path, body, content_type=how, **query)


async def bind(server, namespace: str, name: str, node: str = NODE, **body: Any) -> Any:
    """Bind a pod; whatever the answer is, it is returned."""
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}, **body}
    return await server.call("POST", core(namespace, "pods", name, "binding"), binding)


async def until(server, path: str, holds) -> JsonObject:
    """The object at the path, once something holds of it (None: once it is gone)."""
    for _ in range(TRIES):
        answer = await server.call("GET", path)
        if holds is None and answer.status == 404:
            return {}
        if answer.status == 200 and holds is not None and holds(answer.json):
            return answer.json
        await asyncio.sleep(0.03)
    raise AssertionError(f"{path} never came to that: {answer.json}")


def causes(answer) -> list[str]:
    """The causes of a 422 as `field: message`, without the values that they quote."""
    assert answer.status == 422, answer.json
    return [f"{each['field']}: {without_values(each['message'])}" for each in answer.json["details"]["causes"]]


def without_values(text: str) -> str:
    """A text of a refusal without the value that it quotes, and without the comparison that may follow."""
    return _QUOTED.sub("", text).partition("\n")[0]


def conditions(obj: JsonObject) -> dict[str, tuple[str, str]]:
    """The conditions of an object by type, as status and reason."""
    found = obj.get("status", {}).get("conditions") or ()
    return {each["type"]: (each["status"], each.get("reason", "")) for each in found}


def line(obj: JsonObject) -> str:
    """A Job's status as one line."""
    status = obj.get("status") or {}
    counts = ("active", "ready", "terminating", "succeeded", "failed", "completedIndexes", "failedIndexes")
    words = [f"{name}={status[name]}" for name in counts if status.get(name)]
    words += [f"uncounted-{name}={len(uids)}" for name, uids in (status.get("uncountedTerminatedPods") or {}).items()]
    words += [name for name in ("startTime", "completionTime") if status.get(name)]
    told = [
        f"{each['type']} {each['reason']}"
        if each["status"] == "True"
        else f"{each['type']}={each['status']} {each['reason']}"
        for each in status.get("conditions") or ()
    ]
    return " | ".join([" ".join(words) or "-", *told])
