"""
The webhook configurations: which requests the API server sends to the webhook server.

Names, paths, operations and failure policies are those of Kueue 0.19. Two things differ, so that a webhook that is down
stops no scheduling: updates by Headgate's own processes are not sent, and so are no requests in kube-system and in
Headgate's namespace.
"""

from collections.abc import Sequence
from typing import Any, Final

from headgate.core.admission.queues import GROUP
from headgate.core.admission.rules import AdmissionOperation, AdmissionTarget

Json = dict[str, Any]

MUTATING_NAME: Final = "headgate-mutating-webhooks"
VALIDATING_NAME: Final = "headgate-validating-webhooks"
TIMEOUT_S: Final = 10
SYSTEM_NAMESPACE: Final = "kube-system"


def configurations(
    targets: Sequence[AdmissionTarget],
    *,
    namespace: str,
    service: str,
    labels: dict[str, str],
    annotations: dict[str, str],
) -> list[Json]:
    """The two configurations; the labels and annotations tell who puts the authority's certificate into them."""
    made = []
    for kind, name, prefix, defaulting in (
        ("MutatingWebhookConfiguration", MUTATING_NAME, "mutate", True),
        ("ValidatingWebhookConfiguration", VALIDATING_NAME, "validate", False),
    ):
        webhooks = [
            _webhook(each, prefix, operations, namespace=namespace, service=service)
            for each in targets
            if (operations := each.operations(defaulting=defaulting))
        ]
        metadata: Json = {"name": name, "labels": labels}
        if annotations:
            metadata["annotations"] = annotations
        made.append(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": kind,
                "metadata": metadata,
                "webhooks": webhooks,
            }
        )
    return made


def _webhook(
    target: AdmissionTarget, prefix: str, operations: tuple[AdmissionOperation, ...], *, namespace: str, service: str
) -> Json:
    client = {"service": {"namespace": namespace, "name": service, "path": f"/{prefix}{target.path}", "port": 443}}
    webhook: Json = {
        "name": name_of(target, prefix),
        "admissionReviewVersions": ["v1"],
        "clientConfig": client,
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "sideEffects": "None",
        "timeoutSeconds": TIMEOUT_S,
        "rules": [rule_of(target, operations, defaulting=prefix == "mutate")],
        "matchConditions": [not_by_headgate(namespace)],
    }
    if target.group != GROUP:
        webhook["namespaceSelector"] = user_namespaces(namespace)
    return webhook


def name_of(target: AdmissionTarget, prefix: str) -> str:
    """The name of a webhook, which its refusals are told with: `vjob.kb.io` for the prefix `validate`."""
    return f"{prefix[0]}{target.kind.lower()}.kb.io"


def rule_of(target: AdmissionTarget, operations: Sequence[AdmissionOperation], *, defaulting: bool) -> Json:
    """Which requests are about the kind. What is defaulted is no subresource."""
    subresources = () if defaulting else target.subresources
    return {
        "apiGroups": [target.group],
        "apiVersions": [target.version],
        "operations": [each.value for each in operations],
        "resources": [target.plural, *(f"{target.plural}/{each}" for each in subresources)],
    }


def not_by_headgate(namespace: str) -> Json:
    """The condition that leaves updates by our own processes alone."""
    return {
        "name": "not-an-update-by-headgate",
        "expression": "request.operation == 'CREATE' || "
        f"!request.userInfo.username.startsWith('system:serviceaccount:{namespace}:')",
    }


def user_namespaces(namespace: str) -> Json:
    """All namespaces but kube-system and ours."""
    excluded = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": [SYSTEM_NAMESPACE, namespace],
    }
    return {"matchExpressions": [excluded]}
