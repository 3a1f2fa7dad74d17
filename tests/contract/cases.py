"""Small helpers of the cases: paths and manifests of the objects they try things on, and the bodies of refusals."""

from typing import Any

JsonObject = dict[str, Any]

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


UNCHECKED = (
    "Invalid",
    "<nil>",
    "Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation",
)
"""The additional cause of errors that prevent the evaluation of CEL rules."""


def core(namespace: str, plural: str, *rest: str) -> str:
    """A path in a namespace under `/api/v1`."""
    return "/".join(["/api/v1/namespaces", namespace, plural, *rest])


def batch(namespace: str, *rest: str) -> str:
    """A path of jobs in a namespace."""
    return "/".join(["/apis/batch/v1/namespaces", namespace, "jobs", *rest])


def kueue(plural: str, *rest: str, namespace: str = "") -> str:
    """A path of Kueue's storage version; cluster-scoped without a namespace."""
    middle = ["namespaces", namespace] if namespace else []
    return "/".join([KUEUE, *middle, plural, *rest])


def status(code: int, reason: str, message: str, details: JsonObject | None = None) -> JsonObject:
    """The whole body of a refusal."""
    body: JsonObject = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
    }
    if details is not None:
        body["details"] = details
    return body | {"code": code}


def refusal(code: int, reason: str, message: str) -> JsonObject:
    """The whole body of a refusal that has no details."""
    return status(code, reason, message)


def unsaid(message: str) -> JsonObject:
    """The whole body of a 500, which has no reason."""
    body = status(500, "", message)
    del body["reason"]
    return body


def invalid(what: str, details: JsonObject, *causes: tuple[str, str, str]) -> JsonObject:
    """
    The whole body of a 422 with causes (reason without `FieldValue`, field, text), as `told` gives it.

    `what` is how the message calls the object: `ConfigMap "a"`.
    """
    told = [{"reason": f"FieldValue{reason}", "message": text, "field": field} for reason, field, text in causes]
    only = f"{causes[0][1]}: {causes[0][2]}" if len(causes) == 1 else "["
    return status(422, "Invalid", f"{what} is invalid: {only}", {**details, "causes": sorted(told, key=str)})


def told(body: JsonObject) -> JsonObject:
    """
    A refusal as the cases compare it: each cause once, in one order, and out of the message if there are several.

    An API server repeats a cause for every layer that finds it, and walks maps in an order that changes.
    """
    causes = (body.get("details") or {}).get("causes")
    if not causes:
        return body
    once = sorted({str(cause): cause for cause in causes}.values(), key=str)
    message = body["message"]
    if len(once) > 1 and " is invalid: [" in message:
        message = message.partition(" is invalid: [")[0] + " is invalid: ["
    return {**body, "message": message, "details": {**body["details"], "causes": once}}


def config_map(name: str, data: dict[str, Any] | None = None, **metadata: Any) -> JsonObject:
    """A ConfigMap: the kind with the fewest rules of its own."""
    content = {} if data is None else {"data": data}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, **content}


def workload(name: str, **spec: Any) -> JsonObject:
    """A Workload of two pods that ask for one CPU each."""
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    pod_set = {"name": "main", "count": 2, "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": {"queueName": "lq", "podSets": [pod_set], **spec},
    }


def condition(kind: str, value: str = "True") -> JsonObject:
    """A condition as the API requires it, with every field."""
    when = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": value, "reason": "Because", "message": "it is so", "lastTransitionTime": when}


def managers(obj: JsonObject) -> dict[str, JsonObject]:
    """The managed fields of an object by `manager/operation[/subresource]`."""
    return {
        "/".join(filter(None, [entry["manager"], entry["operation"], entry.get("subresource", "")])): entry["fieldsV1"]
        for entry in obj["metadata"].get("managedFields", [])
    }
