"""Protobuf bodies: what some kubectl commands send is read completely or refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.testing.cluster.api import protobuf


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def body(api_version, kind, message):
    return protobuf.MAGIC + field(1, field(1, api_version) + field(2, kind)) + field(2, message)


def test_a_job_is_read_with_its_template():
    """Nested messages, lists, maps, quantities; Go's zero values are left out, explicit zeros are kept."""
    quantity = field(1, "500m")
    resources = field(2, field(1, "cpu") + field(2, quantity))
    container = field(1, "c") + field(2, "img") + field(3, "a") + field(3, "b") + field(8, resources) + field(16, 0)
    template = field(1, field(11, field(1, "k") + field(2, "v"))) + field(2, field(2, container) + field(3, "Never"))
    metadata = field(1, "j") + field(2, "") + field(4, "") + field(7, 0) + field(8, b"")
    message = field(1, metadata) + field(2, field(1, 0) + field(6, template) + field(10, 1))
    assert protobuf.decode(body("batch/v1", "Job", message)) == {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j"},
        "spec": {
            "parallelism": 0,
            "suspend": True,
            "template": {
                "metadata": {"labels": {"k": "v"}},
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {"name": "c", "image": "img", "command": ["a", "b"], "resources": {"requests": {"cpu": "500m"}}}
                    ],
                },
            },
        },
    }


def test_a_review_of_access_is_read():
    """As `kubectl auth can-i` sends it, with an empty status."""
    attributes = field(1, "default") + field(2, "create") + field(3, "batch") + field(5, "jobs") + field(7, "")
    message = field(1, field(1, "")) + field(2, field(1, attributes)) + field(3, field(1, 0) + field(4, 0))
    asked = protobuf.decode(body("authorization.k8s.io/v1", "SelfSubjectAccessReview", message))
    wanted = {"namespace": "default", "verb": "create", "group": "batch", "resource": "jobs"}
    assert asked["spec"] == {"resourceAttributes": wanted}


def test_a_field_or_kind_that_is_not_known_is_refused():
    """Rather than read without it; so is a body that ends early."""
    with pytest.raises(ValueError, match="field 1 of a protobuf PodSpec is not read; send JSON"):
        protobuf.decode(body("v1", "Pod", field(2, field(1, "volume"))))
    with pytest.raises(ValueError, match="kind 'Service' are not read"):
        protobuf.decode(body("v1", "Service", b""))
    with pytest.raises(ValueError, match="ends within"):
        protobuf.decode(body("v1", "Namespace", field(1, field(1, "n")))[:-1])


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    """Nothing but ValueError leaves the decoder."""
    try:
        protobuf.decode(protobuf.MAGIC + data)
    except ValueError:
        return
    assert data
