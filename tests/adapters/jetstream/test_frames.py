"""Messages in the words of the client protocol, held against nats-py's own."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nats.protocol import command

from headgate.adapters.jetstream.frames import frame

NAMES = st.from_regex(re.compile(r"[A-Za-z-]{1,12}", re.ASCII), fullmatch=True)
VALUES = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zs"]), min_size=1)


@given(payload=st.binary(), reply=st.sampled_from(["", "_INBOX.a.1"]))
def test_a_message_without_headers_is_what_nats_py_sends(payload: bytes, reply: str) -> None:
    """PUB with the size of the payload."""
    assert frame("a.b", payload, reply=reply) == command.pub_cmd("a.b", reply, payload)


@given(payload=st.binary(), headers=st.dictionaries(NAMES, VALUES, min_size=1))
def test_headers_are_what_nats_py_sends(payload: bytes, headers: dict[str, str]) -> None:
    """HPUB with the sizes, in bytes, of the headers and of both."""
    block = "NATS/1.0\r\n" + "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
    assert frame("a.b", payload, headers) == command.hpub_cmd("a.b", "", block.encode(), payload)


@given(value=st.text(st.sampled_from("a\r\n:")))
def test_the_value_of_a_header_cannot_end_its_line(value: str) -> None:
    """Whatever an event names, it makes no header and no body of its own."""
    sent = frame("a.b", b"body", {"first": value, "second": "2"})
    _, _, rest = sent.partition(b"\r\n")
    head, _, body = rest.partition(b"\r\n\r\n")
    assert body == b"body\r\n"
    assert len(head.splitlines()) == 3


@pytest.mark.parametrize("subject", ["", " ", "a b", "a\r\nPUB b 0", "a\t"])
def test_a_subject_that_would_end_early_is_refused(subject: str) -> None:
    """It would be read as something else by the server."""
    with pytest.raises(ValueError, match="is not a subject"):
        frame(subject, b"")
