"""
Recorded scenarios of Kueue, read: manifests, configuration, feature gates, clock, and how many cycles were run.

Raises PlanInputError with object, field and what to do, as `headgate plan -f` does.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.core.config.reader import ConfigurationError, read_parts
from headgate.core.kubernetes.conditions import parse_rfc3339
from headgate.core.plan.reading import PlanInputError, read_objects
from headgate.events.facts import ConfigurationObserved, Fact
from headgate.events.ids import UnixMs


class Scenario(msgspec.Struct, frozen=True):
    """A recorded scenario, read. `cycles_max` bounds its run."""

    name: str
    facts: tuple[Fact, ...]
    configuration: ConfigurationObserved
    now_ms: UnixMs
    cycles_max: int


def read_scenario(record: Any) -> Scenario:
    """
    A scenario: the record itself, or one that has it under `scenario` (beside the outcome that Kueue had).

    Raises PlanInputError.
    """
    if isinstance(record, Mapping) and "scenario" in record:
        record = record["scenario"]
    if not isinstance(record, Mapping):
        raise PlanInputError("a scenario is expected: an object with name, now, cycles, objects")
    name = record.get("name")
    if not isinstance(name, str) or not name:
        raise PlanInputError("field name: a text is expected")
    try:
        return Scenario(
            name=name,
            facts=read_objects(_field(record, "objects", list)),
            configuration=ConfigurationObserved(
                configuration=read_parts(record.get("config") or {}, record.get("features") or {})
            ),
            now_ms=_time(_field(record, "now", str)),
            cycles_max=_field(record, "cycles", int),
        )
    except PlanInputError as error:
        raise PlanInputError(f"scenario {name}: {error}") from error
    except ConfigurationError as error:
        raise PlanInputError(f"scenario {name}: config: {error}") from error


def _field(record: Mapping[str, Any], field: str, kind: type) -> Any:
    value = record.get(field)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise PlanInputError(f"field {field}: {_EXPECTED[kind]} is expected")
    if isinstance(value, list) and not all(isinstance(each, Mapping) for each in value):
        raise PlanInputError(f"field {field}: a list of objects is expected")
    return value


_EXPECTED: Mapping[type, str] = {list: "a list", str: "a text", int: "a number"}


def _time(text: str) -> UnixMs:
    try:
        return parse_rfc3339(text)
    except ValueError:
        raise PlanInputError(f"field now: {text!r} is no time: write it as 2026-01-31T12:00:00Z") from None
