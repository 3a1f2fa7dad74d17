"""
AdmissionReviews answered by the rules of `headgate.core.admission`, with the facts that informers keep.

A review of a kind whose integration is not enabled, or of an operation without rules, is allowed as it is. Whether an
owner of an object is a managed job is looked up in the API server, owner by owner, where a rule depends on it; so only
what other jobs own costs that. So is the runtime of a TrainJob.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.errors import ApiError, KubernetesError
from headgate.adapters.kubernetes.resources import Resource
from headgate.core.admission import review
from headgate.core.admission.kinds import TARGETS
from headgate.core.admission.lookups import LookupFailedError, ObjectReference, deciding
from headgate.core.admission.review import AdmissionRequest
from headgate.core.admission.rules import AdmissionOperation, AdmissionTarget, Params
from headgate.core.admission.settings import AdmissionSettings
from headgate.core.kubernetes.cel_values import CelError
from headgate.processes.webhook.facts import Informer
from headgate.processes.webhook.handlers import Handler

Json = dict[str, Any]


class InformerFacts:
    """The facts of `headgate.core.admission.review.Facts`, from informers."""

    def __init__(self, informer: Informer) -> None:
        self._informer = informer

    def default_of(self, kind: Params, namespace: str) -> Json | None:
        """The object called `default`."""
        return self._informer.get(kind.value, namespace if kind is Params.LOCAL_QUEUE else "", review.DEFAULT_NAME)

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

        def patched(admitted: AdmissionRequest) -> Json:
            done = review.defaulted(target, self._settings, admitted, self._facts)
            if not done.patch:
                return {"allowed": True}
            patch = base64.b64encode(msgspec.json.encode(done.patch)).decode()
            return {"allowed": True, "patchType": "JSONPatch", "patch": patch}

        try:
            return _answer(body, await self._decided(target, body["request"], patched))
        except (LookupFailedError, CelError) as error:
            return _answer(body, _refused(f"the defaults of the object cannot be told: {error}"))

    async def validate(self, target: AdmissionTarget, body: Json) -> Json:
        """Answer with what is wrong."""

        def checked(admitted: AdmissionRequest) -> Json:
            found = review.problems(target, self._settings, admitted, self._facts)
            response: Json = _refused(*review.denial(found)) if found else {"allowed": True}
            if warned := review.warnings(target, self._settings, admitted, self._facts):
                response["warnings"] = warned
            return response

        try:
            return _answer(body, await self._decided(target, body["request"], checked))
        except LookupFailedError as error:
            return _answer(body, _refused(str(error)))

    async def _decided(
        self, target: AdmissionTarget, request: Json, decide: Callable[[AdmissionRequest], Json]
    ) -> Json:
        """The response to a request; others are looked up only where rules depend on them. Raises LookupFailedError."""
        if not self._settings.covers(target) or request["operation"] not in tuple(AdmissionOperation):
            return {"allowed": True}
        admitted = AdmissionRequest(
            object=request["object"], old=request.get("oldObject"), namespace=request.get("namespace", "")
        )
        asking = deciding(admitted, self._settings, decide)
        try:
            wanted = next(asking)
            while True:
                wanted = asking.send(await self._read(wanted, admitted.namespace))
        except StopIteration as end:
            response: Json = end.value
            return response

    async def _read(self, wanted: ObjectReference, namespace: str) -> Json | None:
        resource = _resource_of(wanted)
        try:
            raw = await self._client.get(resource, wanted.name, namespace if resource.namespaced else None)
            found: Json = msgspec.json.decode(raw)
        except KubernetesError as error:
            if isinstance(error, ApiError) and error.is_not_found:
                return None
            what = "its owner" if wanted.uid else "its runtime"
            raise LookupFailedError(f"{what} {wanted} cannot be read: {error}") from error
        return found


def _resource_of(wanted: ObjectReference) -> Resource:
    group, _, version = wanted.api_version.rpartition("/")
    plural, kind = f"{wanted.kind.lower()}s", wanted.kind
    return Resource(group=group, version=version, plural=plural, kind=kind, namespaced=wanted.is_namespaced)


def _refused(message: str, causes: Sequence[Json] = ()) -> Json:
    status: Json = {"status": "Failure", "message": message, "reason": "Forbidden", "code": 403}
    if causes:
        status["details"] = {"causes": list(causes)}
    return {"allowed": False, "status": status}


def _answer(body: Json, response: Json) -> Json:
    """The review with its response, and without the objects, which the API server has."""
    return {
        "apiVersion": body.get("apiVersion", "admission.k8s.io/v1"),
        "kind": body.get("kind", "AdmissionReview"),
        "response": {"uid": body["request"]["uid"], **response},
    }
