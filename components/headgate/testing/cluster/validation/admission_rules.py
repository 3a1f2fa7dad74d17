"""
Kueue's defaults and refusals on the simulated API server, as a webhook server gives them on a real one.

The rules are those of `headgate.core.admission`; what they read of the cluster is in the store. As on a real server
they come after the server's own plugins, defaults before an object is checked and refusals after, and updates by
Headgate's own processes are left alone. Called by the registry for each write.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from headgate.core.admission import review
from headgate.core.admission.kinds import TARGETS
from headgate.core.admission.lookups import LookupFailedError, deciding
from headgate.core.admission.queues import GROUP
from headgate.core.admission.review import AdmissionRequest
from headgate.core.admission.rules import AdmissionTarget, Params
from headgate.core.admission.settings import AdmissionSettings
from headgate.core.admission.webhooks import SYSTEM_NAMESPACE, name_of
from headgate.core.kubernetes.cel_values import CelError
from headgate.core.status.server_side_apply import FIELD_MANAGER
from headgate.core.status.workload_status import ADMISSION_MANAGER
from headgate.testing.cluster.api.writes import Write
from headgate.testing.cluster.errors import ApiStatusError
from headgate.testing.cluster.kinds import BY_KIND, BY_PLURAL, Kind
from headgate.testing.cluster.validation.registry_reader import RegistryReader

JsonObject = dict[str, Any]
_Answer = TypeVar("_Answer")

_BY_KIND: Final = {(each.group, each.kind): each for each in TARGETS}
_DEFAULTS: Final = {
    Params.LOCAL_QUEUE: BY_PLURAL[(GROUP, "localqueues")],
    Params.PRIORITY_CLASS: BY_PLURAL[(GROUP, "workloadpriorityclasses")],
}
_NAMESPACES: Final = BY_PLURAL[("", "namespaces")]
OURS: Final = frozenset({FIELD_MANAGER, ADMISSION_MANAGER})
"""The field managers of Headgate's own processes."""


class StoredFacts:
    """The facts of `headgate.core.admission.review.Facts`, from the store."""

    def __init__(self, reader: RegistryReader) -> None:
        self._reader = reader

    def default_of(self, kind: Params, namespace: str) -> JsonObject | None:
        """The object called `default`."""
        entry = self._reader.find(_DEFAULTS[kind], namespace, review.DEFAULT_NAME)
        return None if entry is None else entry.obj

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace."""
        entry = self._reader.find(_NAMESPACES, "", namespace)
        labels: Mapping[str, str] = (entry.obj["metadata"].get("labels") or {}) if entry is not None else {}
        return labels


class AdmissionRules:
    """The rules under these settings."""

    def __init__(self, settings: AdmissionSettings, reader: RegistryReader) -> None:
        self._settings = settings
        self._reader = reader
        self._facts = StoredFacts(reader)

    def defaulted(self, kind: Kind, fresh: JsonObject, old: JsonObject | None, write: Write) -> JsonObject:
        """An object as it is to be stored. Raises ApiStatusError 403."""
        target = self._target(kind, fresh, old, write)
        if target is None or write.subresource or not target.operations(defaulting=True):
            return fresh
        return self._decided(
            target,
            "mutate",
            _request(fresh, old),
            lambda admitted: review.defaulted(target, self._settings, admitted, self._facts).object,
        )

    def check(self, kind: Kind, fresh: JsonObject, old: JsonObject | None, write: Write) -> None:
        """Raises ApiStatusError 403 for an object that is refused; what its client is warned of is in the write."""
        target = self._target(kind, fresh, old, write)
        if target is None or (write.subresource and write.subresource not in target.subresources):
            return

        def checked(admitted: AdmissionRequest) -> list[str]:
            if found := review.problems(target, self._settings, admitted, self._facts):
                message, causes = review.denial(found)
                raise _denied(target, "validate", message, causes)
            return review.warnings(target, self._settings, admitted, self._facts)

        write.warnings += self._decided(target, "validate", _request(fresh, old), checked)

    def _target(self, kind: Kind, fresh: JsonObject, old: JsonObject | None, write: Write) -> AdmissionTarget | None:
        """The table of a kind; None where a write is not looked at."""
        target = _BY_KIND.get((kind.group, kind.kind))
        if target is None or not self._settings.covers(target) or (old is not None and write.manager in OURS):
            return None
        is_users = kind.group == GROUP or fresh["metadata"].get("namespace", "") != SYSTEM_NAMESPACE
        return target if is_users else None

    def _decided(
        self,
        target: AdmissionTarget,
        prefix: str,
        admitted: AdmissionRequest,
        decide: Callable[[AdmissionRequest], _Answer],
    ) -> _Answer:
        asking = deciding(admitted, self._settings, decide)
        try:
            wanted = next(asking)
            while True:
                kind = BY_KIND.get((wanted.api_version.rpartition("/")[0], wanted.kind))
                namespace = admitted.namespace if wanted.is_namespaced else ""
                entry = self._reader.find(kind, namespace, wanted.name) if kind is not None else None
                wanted = asking.send(None if entry is None else entry.obj)
        except StopIteration as end:
            answer: _Answer = end.value
            return answer
        except (LookupFailedError, CelError) as error:
            raise _denied(target, prefix, str(error), []) from error


def _request(fresh: JsonObject, old: JsonObject | None) -> AdmissionRequest:
    return AdmissionRequest(object=fresh, old=old, namespace=fresh["metadata"].get("namespace", ""))


def _denied(target: AdmissionTarget, prefix: str, message: str, causes: list[JsonObject]) -> ApiStatusError:
    """A refusal in the words in which the API server passes on those of webhooks."""
    text = f'admission webhook "{name_of(target, prefix)}" denied the request: {message}'
    return ApiStatusError(403, "Forbidden", text, details={"causes": causes} if causes else None)
