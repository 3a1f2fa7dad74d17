"""
Reviews of access: who the client is and what it may do.

The simulated cluster has no users: everybody may do everything.
`kubectl auth can-i` and `kubectl auth whoami` send them. They are answered and not stored.
"""

from collections.abc import Mapping
from typing import Any, Final

JsonObject = dict[str, Any]

_ACCESS: Final[Mapping[str, Any]] = {"allowed": True, "reason": "the simulated cluster has no users"}
_EVERYTHING: Final[Mapping[str, Any]] = {
    "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    "incomplete": False,
}
_ANYBODY: Final[Mapping[str, Any]] = {
    "userInfo": {"username": "system:anonymous", "groups": ["system:masters", "system:unauthenticated"]}
}
_AUTHORIZATION: Final = "authorization.k8s.io/v1"
REVIEWS: Final = {
    f"/apis/{_AUTHORIZATION}/selfsubjectaccessreviews": (_AUTHORIZATION, "SelfSubjectAccessReview", _ACCESS),
    f"/apis/{_AUTHORIZATION}/subjectaccessreviews": (_AUTHORIZATION, "SubjectAccessReview", _ACCESS),
    f"/apis/{_AUTHORIZATION}/selfsubjectrulesreviews": (_AUTHORIZATION, "SelfSubjectRulesReview", _EVERYTHING),
    "/apis/authentication.k8s.io/v1/selfsubjectreviews": (
        "authentication.k8s.io/v1", "SelfSubjectReview", _ANYBODY,
    ),
}  # fmt: skip
"""Where reviews are sent: their version, kind and answer."""


def review(path: str, body: Any) -> JsonObject:
    """The answer to a review that is sent to one of the paths of `REVIEWS`."""
    api_version, kind, status = REVIEWS[path]
    spec = {"spec": body["spec"]} if isinstance(body, dict) and "spec" in body else {}
    return {"kind": kind, "apiVersion": api_version, "metadata": {}, **spec, "status": dict(status)}
