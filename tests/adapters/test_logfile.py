"""Logs in files: what is written is read back, and what is no log is refused."""

import gzip
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.adapters.log import LogEntry
from headgate.adapters.logfile import LogFileError, LogFileWriter, read_log_file

PAYLOADS = st.one_of(
    st.binary(max_size=200),
    st.dictionaries(st.text(max_size=5), st.one_of(st.integers(), st.text(max_size=10)), max_size=4).map(
        msgspec.json.encode
    ),
    st.sampled_from([b"null", b"{}", b" {}", b"{}\n", b'"\xff"', b"[1, 2]", b"{", b""]),
)


@given(st.lists(st.tuples(st.text(max_size=20), st.integers(0, 2**53), PAYLOADS), max_size=20))
def test_entries_come_back_byte_for_byte(tmp_path_factory: pytest.TempPathFactory, parts: list) -> None:
    """Whatever the payload: compact JSON, JSON with blanks, damaged, or no JSON at all."""
    entries = [LogEntry(seq, subject, time_ms, payload) for seq, (subject, time_ms, payload) in enumerate(parts, 1)]
    path = tmp_path_factory.mktemp("log") / "log.jsonl.gz"
    with LogFileWriter(path) as writer:
        writer.write(entries)
    assert list(read_log_file(path)) == entries
    assert writer.entries == len(entries)


def test_the_same_log_gives_the_same_file(tmp_path: Path) -> None:
    """Name and time of writing are not in it."""
    entries = [LogEntry(1, "headgate.main.log.binder", 5, b'{"a":1}')]
    for name in ("one.gz", "two.gz"):
        with LogFileWriter(tmp_path / name) as writer:
            writer.write(entries)
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """A file is replaced when the new one is whole, and not before."""
    path = tmp_path / "log.gz"
    with LogFileWriter(path) as writer:
        writer.write([LogEntry(1, "s", 1, b"{}")])

    def fail() -> None:
        with LogFileWriter(path) as writer:
            writer.write([LogEntry(2, "s", 1, b"{}")])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [entry.seq for entry in read_log_file(path)] == [1]
    assert [each.name for each in tmp_path.iterdir()] == ["log.gz"]


def test_a_file_that_was_cut_off_is_read_up_to_the_cut_and_refused(tmp_path: Path) -> None:
    """The reader gets what there is, then an error that names the file."""
    path = tmp_path / "log.gz"
    with LogFileWriter(path) as writer:
        writer.write(LogEntry(seq, "s", seq, b'{"n":%d}' % (seq * 7919 % 1000)) for seq in range(1, 2000))
    path.write_bytes(path.read_bytes()[:-200])
    read: list[Any] = []
    with pytest.raises(LogFileError, match=r"log\.gz was cut off after line \d+"):
        read.extend(read_log_file(path))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"not gzip", "is no gzipped log"),
        (gzip.compress(b'{"seq": "x"}\n'), "line 1 is no log entry"),
        (gzip.compress(b'{"seq":1,"subject":"s","base64":"*"}\n'), "line 1 is no log entry"),
    ],
    ids=["text", "a field of another type", "no base64"],
)
def test_what_is_no_log_is_refused_with_its_name(tmp_path: Path, content: bytes, words: str) -> None:
    """And with the line that gave it away."""
    path = tmp_path / "log.gz"
    path.write_bytes(content)
    with pytest.raises(LogFileError, match=words):
        list(read_log_file(path))


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """Before anything is read."""
    with pytest.raises(LogFileError, match=r"nowhere/log\.gz cannot be written"):
        LogFileWriter(tmp_path / "nowhere" / "log.gz")
