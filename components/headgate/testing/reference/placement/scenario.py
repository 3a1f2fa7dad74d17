"""
Recorded scenarios of the kube-scheduler, read: configuration, objects, and the script of what happens later.

Raises PlanInputError with the field and what to do.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.core.kubernetes.conditions import parse_rfc3339
from headgate.core.plan.reading import PlanInputError
from headgate.events.ids import UnixMs

Json = dict[str, Any]


class ScriptAction(msgspec.Struct, frozen=True):
    """Something that happens at a second since the start."""

    at: int
    op: str
    kind: str = ""
    name: str = ""
    object: Json = {}
    patch: Json = {}


class PlacementScenario(msgspec.Struct, frozen=True, rename="camel"):
    """A scenario. Times are in whole seconds since `start`."""

    name: str
    start: str
    config: Json
    objects: list[Json]
    scheduling_starts_at: int = 0
    victim_grace_seconds: int = 0
    script: list[ScriptAction] = []

    @property
    def start_ms(self) -> UnixMs:
        """The clock at second 0."""
        return parse_rfc3339(self.start)


def is_placement(record: Any) -> bool:
    """Whether a record is a scenario of the kube-scheduler: it has a script, where one of Kueue's counts cycles."""
    scenario = record.get("scenario", record) if isinstance(record, Mapping) else None
    return isinstance(scenario, Mapping) and "schedulingStartsAt" in scenario


def read_placement_scenario(record: Any) -> PlacementScenario:
    """A scenario: the record itself, or one that has it under `scenario`. Raises PlanInputError."""
    scenario = record.get("scenario", record) if isinstance(record, Mapping) else record
    try:
        read = msgspec.convert(scenario, PlacementScenario)
        parse_rfc3339(read.start)
    except msgspec.ValidationError as error:
        raise PlanInputError(f"placement scenario: {error}") from error
    except ValueError:
        raise PlanInputError(f"scenario {scenario['name']}: field start: write it as 2026-01-31T12:00:00Z") from None
    return read
