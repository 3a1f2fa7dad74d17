"""Families of events by the fields that they have in common."""

from typing import Any, get_args

import pytest

from headgate.events import families
from headgate.events.registry import TAGS


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        (families.NamesWorkload, {"workload"}),
        (families.OfWorkload, {"workload", "uid"}),
        (families.InClusterQueue, {"workload", "uid", "cluster_queue"}),
    ],
)
def test_a_family_is_every_event_with_its_fields(family: Any, fields: set[str]) -> None:
    """An event with the fields of a family that is missing in it would be ignored where the family is of interest."""
    assert set(get_args(family)) == {kind for kind in TAGS.values() if fields <= set(kind.__struct_fields__)}
