"""JSON merge patches: what they make of a document, and whether a document shows one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.kubernetes.merge_patch import is_applied, merge_patched, removals

Json = Any
NAMES = st.sampled_from("abc")
LEAVES = st.one_of(st.integers(0, 2), st.text("xy", max_size=1), st.lists(st.integers(0, 2), max_size=2))
DOCUMENTS = st.recursive(
    st.dictionaries(NAMES, LEAVES, max_size=3), lambda below: st.dictionaries(NAMES, LEAVES | below, max_size=3)
)
PATCHES = st.recursive(
    st.dictionaries(NAMES, LEAVES | st.none(), max_size=3),
    lambda below: st.dictionaries(NAMES, LEAVES | st.none() | below, max_size=3),
)


@pytest.mark.parametrize(
    ("document", "patch", "merged"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_patch_changes_a_document_as_the_rfc_says(document: Json, patch: Json, merged: Json) -> None:
    """The examples of RFC 7386, appendix A."""
    assert merge_patched(document, patch) == merged


@given(DOCUMENTS, PATCHES)
def test_a_patched_document_shows_its_patch(document: Json, patch: Json) -> None:
    """Whatever it sets and removes."""
    assert is_applied(merge_patched(document, patch), patch)


@given(DOCUMENTS, PATCHES)
def test_removals_are_what_is_left_of_a_patch_without_what_it_sets(document: Json, patch: Json) -> None:
    """They are shown by whatever shows the patch, and remove nothing else."""
    gone = removals(patch)
    assert is_applied(merge_patched(document, patch), gone)
    assert merge_patched(merge_patched(document, gone), patch) == merge_patched(document, patch)
    assert removals(gone) == gone


@pytest.mark.parametrize(
    ("document", "is_there"),
    [
        ({"allocation": {"x": 1}}, False),
        ({"allocation": None}, True),
        ({}, True),
    ],
)
def test_null_removes_a_field(document: Json, *, is_there: bool) -> None:
    """A field that is null counts as absent, as in an object of the API server."""
    assert is_applied(document, {"allocation": None}) == is_there
    assert is_applied({"status": document}, {"status": {"allocation": None}}) == is_there


def test_an_absent_object_is_an_empty_one() -> None:
    """As the API server leaves out a status that has no field; another value is none."""
    assert is_applied({}, {"status": {"devices": {"results": None}}})
    assert is_applied({"status": None}, {"status": {}})
    assert not is_applied({}, {"status": {"phase": "Bound", "allocation": None}})
    assert not is_applied({"status": "x"}, {"status": {"allocation": None}})


@pytest.mark.parametrize(
    ("reserved", "is_there"), [(["uid-o", "uid-p"], True), (["uid-o"], False), ([], False), (None, False)]
)
def test_what_a_list_has_beside_the_items_to_be_written_does_not_matter(
    reserved: list[str] | None, *, is_there: bool
) -> None:
    """A claim that is reserved for another pod as well; each item is found by its fields."""
    live: Json = {"status": {} if reserved is None else {"reservedFor": [{"uid": uid, "x": 1} for uid in reserved]}}
    assert is_applied(live, {"status": {"reservedFor": [{"uid": "uid-p"}]}}) == is_there
