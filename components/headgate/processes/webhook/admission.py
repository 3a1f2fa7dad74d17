"""
AdmissionReviews answered by the rules of `headgate.core.admission`, with the facts that informers keep.

A review of a kind whose integration is not enabled, or of an operation without rules, is allowed as it is. Whether an
owner of an object is a managed job is looked up in the API server, owner by owner; only jobs that others own cost that.
"""

import base64
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.errors import KubernetesError
from headgate.adapters.kubernetes.resources import Resource
from headgate.core.admission import review
from headgate.core.admission.jobs import OWNING_KINDS
from headgate.core.admission.kinds import TARGETS
from headgate.core.admission.review import AdmissionRequest, Problem
from headgate.core.admission.rules import QUEUE_LABEL, AdmissionOperation, AdmissionTarget, Params
from headgate.core.admission.settings import AdmissionSettings
from headgate.core.kubernetes.cel import CelError
from headgate.processes.webhook.facts import Informer
from headgate.processes.webhook.handlers import Handler

Json = dict[str, Any]

OWNERS_MAX: Final = 10
"""The longest chain of owners that is followed."""


class OwnerError(Exception):
    """Raised when an owner cannot be looked up. The object is refused: it might be one that has to wait."""


class InformerFacts:
    """The facts of `headgate.core.admission.review.Facts`, from informers."""

    def __init__(self, informer: Informer) -> None:
        self._informer = informer

    def default_of(self, kind: Params, namespace: str) -> Json | None:
        """The object called `default`."""
        return self._informer.get(kind.value, namespace if kind is Params.LOCAL_QUEUE else "", "default")

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace; none if it is not known yet."""
        found = self._informer.get("namespaces", "", namespace) or {}
        labels: Mapping[str, str] = (found.get("metadata") or {}).get("labels") or {}
        return labels


class AdmissionHandlers:
    """The handlers of all kinds."""

    def __init__(self, settings: AdmissionSettings, facts: review.Facts, client: KubeClient) -> None:
        self._settings = settings
        self._facts = facts
        self._client = client

    def handlers(self) -> dict[str, Handler]:
        """By path."""
        every: dict[str, Handler] = {
            f"/mutate{each.path}": partial(self.mutate, each) for each in TARGETS if each.defaults
        }
        return every | {f"/validate{each.path}": partial(self.validate, each) for each in TARGETS if each.rules}

    async def mutate(self, target: AdmissionTarget, body: Json) -> Json:
        """Answer with the patch of the defaults."""
        request = body["request"]
        try:
            admitted = await self._admitted(target, request)
            if admitted is None:
                return _answer(body, {"allowed": True})
            done = review.defaulted(target, self._settings, admitted, self._facts)
        except (OwnerError, CelError) as error:
            return _answer(body, _refused(f"the defaults of the object cannot be told: {error}", []))
        if not done.patch:
            return _answer(body, {"allowed": True})
        patch = base64.b64encode(msgspec.json.encode(done.patch)).decode()
        return _answer(body, {"allowed": True, "patchType": "JSONPatch", "patch": patch})

    async def validate(self, target: AdmissionTarget, body: Json) -> Json:
        """Answer with what is wrong."""
        try:
            admitted = await self._admitted(target, body["request"])
        except OwnerError as error:
            return _answer(body, _refused(str(error), []))
        if admitted is None:
            return _answer(body, {"allowed": True})
        found = review.problems(target, self._settings, admitted, self._facts)
        response: Json = _refused(aggregate(found), found) if found else {"allowed": True}
        if warned := review.warnings(target, self._settings, admitted, self._facts):
            response["warnings"] = warned
        return _answer(body, response)

    async def _admitted(self, target: AdmissionTarget, request: Json) -> AdmissionRequest | None:
        """What is to be admitted; None when no rule is about it. Raises OwnerError."""
        is_enabled = not target.framework or target.framework in self._settings.frameworks
        if not is_enabled or request["operation"] not in tuple(AdmissionOperation):
            return None
        found: Json = request["object"]
        namespace: str = request.get("namespace", "")
        return AdmissionRequest(
            operation=AdmissionOperation(request["operation"]),
            object=found,
            old=request.get("oldObject"),
            namespace=namespace,
            ancestor_is_managed=await self._has_managed_ancestor(found, namespace) if target.framework else None,
        )

    async def _has_managed_ancestor(self, found: Json, namespace: str) -> bool:
        """Whether an owner, or an owner of it, is a job that is managed. Raises OwnerError."""
        is_managed = False
        seen: set[str] = set()
        while (owner := _controller_of(found)) is not None:
            if owner["uid"] in seen or len(seen) >= OWNERS_MAX:
                raise OwnerError(f"the owners of the object lead to {owner['kind']} {owner['name']} without end")
            seen.add(owner["uid"])
            resource = _resource_of(owner)
            try:
                found = msgspec.json.decode(await self._client.get(resource, owner["name"], namespace))
            except KubernetesError as error:
                raise OwnerError(f"its owner {owner['kind']} {owner['name']} cannot be read: {error}") from error
            if found["metadata"].get("uid") != owner["uid"]:
                break
            names_queue = bool((found["metadata"].get("labels") or {}).get(QUEUE_LABEL))
            is_managed = is_managed or names_queue or self._settings.manages_unnamed
        return is_managed


def _controller_of(found: Json) -> Json | None:
    """The owner reference of the controller, if that is of a kind that owns jobs or pods."""
    for each in found["metadata"].get("ownerReferences") or ():
        if each.get("controller") and f"{each['apiVersion']}/{each['kind']}" in OWNING_KINDS:
            owner: Json = each
            return owner
    return None


def _resource_of(owner: Json) -> Resource:
    group, _, version = owner["apiVersion"].rpartition("/")
    return Resource(
        group=group, version=version, plural=f"{owner['kind'].lower()}s", kind=owner["kind"], namespaced=True
    )


def aggregate(found: list[Problem]) -> str:
    """The problems as one message, each once, as Kubernetes joins errors."""
    texts = list(dict.fromkeys(map(str, found)))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _refused(message: str, found: list[Problem]) -> Json:
    status: Json = {"status": "Failure", "message": message, "reason": "Forbidden", "code": 403}
    if found:
        causes = [{"reason": each.error.reason, "message": each.body, "field": each.field} for each in found]
        status["details"] = {"causes": causes}
    return {"allowed": False, "status": status}


def _answer(body: Json, response: Json) -> Json:
    """The review with its response, and without the objects, which the API server has."""
    return {
        "apiVersion": body.get("apiVersion", "admission.k8s.io/v1"),
        "kind": body.get("kind", "AdmissionReview"),
        "response": {"uid": body["request"]["uid"], **response},
    }
