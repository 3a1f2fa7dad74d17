"""One translation from answers to errors, for every body a server or a proxy can send."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.adapters.kubernetes.errors import api_error, is_operating_error, watch_error


def test_a_status_object_gives_reason_message_and_fields():
    """What the server explains reaches the caller, field by field."""
    status = {
        "kind": "Status",
        "code": 422,
        "reason": "Invalid",
        "message": "Workload is invalid",
        "details": {"causes": [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.podSets"}]},
    }
    error = api_error(422, {}, json.dumps(status).encode(), request="POST /x")
    assert error.is_invalid
    assert error.causes[0].field == "spec.podSets"
    assert str(error) == "422 Invalid to POST /x: Workload is invalid; spec.podSets: Required value"


@pytest.mark.parametrize(
    ("status", "reason", "property_name"),
    [
        (404, "NotFound", "is_not_found"),
        (409, "Conflict", "is_conflict"),
        (409, "AlreadyExists", "is_already_exists"),
        (410, "Expired", "is_expired"),
        (410, "Gone", "is_expired"),
    ],
)
def test_the_questions_callers_ask_have_one_true_answer(status, reason, property_name):
    """Each refusal that callers distinguish is exactly one of them."""
    error = api_error(status, {}, json.dumps({"reason": reason, "details": None}).encode())
    names = ["is_not_found", "is_conflict", "is_already_exists", "is_expired", "is_invalid"]
    assert [name for name in names if getattr(error, name)] == [property_name]


def test_a_proxy_without_a_status_object_is_still_explained():
    """A load balancer answers in HTML; the code then gives the reason and the text the message."""
    error = api_error(503, {"retry-after": "12"}, b"<html>no backend</html>")
    assert (error.reason, error.message, error.retry_after) == ("ServiceUnavailable", "<html>no backend</html>", 12.0)


def test_retry_after_is_taken_from_the_status_too():
    """The number in the Status counts where no header is; a date in the header is no number."""
    body = b'{"reason":"TooManyRequests","details":{"retryAfterSeconds":4}}'
    assert api_error(429, {}, body).retry_after == 4.0
    assert api_error(429, {"retry-after": "1"}, body).retry_after == 1.0
    assert api_error(429, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, b"").retry_after is None


def test_a_watch_error_has_the_code_of_its_status():
    """The HTTP answer of a watch was 200; the event's Status has the error."""
    assert watch_error(b'{"kind":"Status","code":410,"reason":"Expired"}').is_expired
    assert watch_error(b"nonsense").status == 500


@given(status=st.integers(300, 599), body=st.binary(max_size=200))
def test_no_body_breaks_the_translation(status, body):
    """Whatever bytes come, there is an error with the status and a reason."""
    error = api_error(status, {}, body)
    assert error.status == status
    assert error.reason


STATUS = b'{"kind":"Status","message":"no"}'


def test_operating_errors_are_those_that_say_nothing_about_the_request():
    """5xx, throttling, time-outs, expired credentials and redirects pass; every other 4xx of the API is final."""
    operating = {status for status in range(300, 600) if is_operating_error(api_error(status, {}, STATUS))}
    assert operating == {401, 408, 429, *range(300, 400), *range(500, 600)}


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (401, STATUS, "the credential of system:serviceaccount:headgate:binder is not accepted; renew it"),
        (
            403,
            b'{"kind":"Status","message":"x is forbidden: User \\"u\\" cannot patch resource \\"workloads/status\\""}',
            "system:serviceaccount:headgate:binder needs an RBAC rule for "
            "patch workloads/status.kueue.x-k8s.io in namespace team-a",
        ),
        (
            404,
            b"404 page not found\n",
            "the API server does not serve workloads/status.kueue.x-k8s.io; install it with `headgate crds install`",
        ),
    ],
)
def test_what_an_operator_must_repair_names_who_what_and_how(status, body, says):
    """A refused credential, a missing right and a missing resource end in the next move, and are waited for."""
    path = "/apis/kueue.x-k8s.io/v1beta2/namespaces/team-a/workloads/w/status"
    error = api_error(status, {}, body, request=f"PATCH {path}", user="system:serviceaccount:headgate:binder")
    assert str(error).endswith(f"; {says}")
    assert is_operating_error(error)


def test_a_body_that_no_apply_could_merge_is_refused_for_good():
    """The API server answers 500 without a reason; a retry cannot succeed. Any other 500 is transient."""
    said = "failed to create typed patch object (/q; kueue.x-k8s.io/v1beta2, Kind=ClusterQueue): errors: ..."
    body = b'{"kind":"Status","message":"%s","code":500}'
    assert not is_operating_error(api_error(500, {}, body % said.encode()))
    assert is_operating_error(api_error(500, {}, body % b"etcdserver: request timed out"))


def test_an_object_that_is_absent_is_no_missing_resource():
    """The API server answers with a Status; nothing has to be installed."""
    error = api_error(404, {}, b'{"kind":"Status","reason":"NotFound","message":"workloads \\"w\\" not found"}')
    assert error.is_not_found
    assert not error.is_unserved
    assert not is_operating_error(error)


def test_a_version_that_an_api_group_does_not_have_is_a_missing_resource():
    """The API server answers with a Status there, too, which names no object: a group with v1 and without v1alpha2."""
    said = (
        b'{"kind":"Status","reason":"NotFound","message":"the server could not find the requested resource","code":404}'
    )
    assert api_error(404, {}, said, request="GET /apis/scheduling.k8s.io/v1alpha2/podgroups").is_unserved
