"""Names of ProvisioningRequests and PodTemplates: Kueue's, with the attempt that is found in them again."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.provisioning.names import attempt_of, limited, request_key, template_name
from headgate.events.ids import RequestKey, WorkloadKey

W = WorkloadKey("team/job-train-1a2b3")
NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,300}[a-z0-9])?", fullmatch=True)


def test_a_request_is_named_after_workload_check_and_attempt() -> None:
    """Its PodTemplates add the pod set."""
    key = request_key(W, "prov", 3)
    assert key == "team/job-train-1a2b3-prov-3"
    assert template_name(key, "main") == "ppt-job-train-1a2b3-prov-3-main"


def test_a_name_that_is_too_long_is_cut_and_gets_a_hash() -> None:
    """247 characters, a dash and five digits of the SHA-1: 253, the limit of the API."""
    assert limited("a" * 247) == "a" * 247
    digits = hashlib.sha1(b"a" * 248, usedforsecurity=False).hexdigest()[:5]
    assert limited("a" * 248) == "a" * 247 + "-" + digits


@given(name=NAMES, check=NAMES, attempt=st.integers(1, 400))
def test_the_attempt_is_found_in_every_name(name: str, check: str, attempt: int) -> None:
    """Also in one that was cut."""
    key = WorkloadKey(f"team/{name}")
    assert attempt_of(request_key(key, check, attempt), key, check) == attempt


@pytest.mark.parametrize(
    "name", ["job-train-1a2b3-other-1", "job-train-1a2b3-prov-", "job-train-1a2b3-prov-x", "job-train-1a2b3-prov-1-2"]
)
def test_a_request_of_another_check_is_none_of_this(name: str) -> None:
    """Nor is one whose name has no number at its end."""
    assert attempt_of(RequestKey(f"team/{name}"), W, "prov") is None
    assert attempt_of(RequestKey("elsewhere/job-train-1a2b3-prov-1"), W, "prov") is None
