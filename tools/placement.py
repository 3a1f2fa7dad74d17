"""
How far placement agrees with recordings of the kube-scheduler, per class and field.

    .venv/bin/python -m tools.placement FILE.jsonl.gz ...                    each attempt, from the recorded state
    .venv/bin/python -m tools.placement FILE --field scores.raw [--name N]   the first differences in one field
    .venv/bin/python -m tools.placement FILE --runs                          whole runs
"""

import argparse
import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headgate.testing.reference.placement.comparing import (
    FIELDS,
    RUN_FIELDS,
    differing_fields,
    differing_run_fields,
)
from headgate.testing.reference.placement.recorded import Following
from headgate.testing.reference.placement.running import outcome_of
from headgate.testing.reference.placement.scenario import read_placement_scenario

SHOWN_MAX = 5

Fields = Mapping[str, Callable[[dict[str, Any]], Any]]


def main() -> None:
    """Compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--field")
    parser.add_argument("--name", default="")
    parser.add_argument("--runs", action="store_true")
    options = parser.parse_args()
    for file in options.files:
        report = Report(file.name, RUN_FIELDS if options.runs else FIELDS, options.field)
        for record in records(file, options.name):
            if options.runs:
                compare_run(record, report)
            else:
                compare_attempts(record, report)
        report.print()


def records(file: Path, name: str) -> Iterator[dict[str, Any]]:
    """The recordings of a file whose name has a text."""
    with gzip.open(file) as lines:
        for line in lines:
            record = json.loads(line)
            if name in record["scenario"]["name"]:
                yield record


def compare_attempts(record: dict[str, Any], report: "Report") -> None:
    """Compare each attempt, made from the recorded state."""
    following = Following(read_placement_scenario(record), record["outcome"]["steps"])
    for ours, recorded in following.attempts():
        where = f"{record['scenario']['name']}: attempt {recorded['n']} of {recorded['pod']}"
        report.add(where, ours, recorded, differing_fields(ours, recorded))


def compare_run(record: dict[str, Any], report: "Report") -> None:
    """Compare a whole run."""
    ours = json.loads(json.dumps(outcome_of(read_placement_scenario(record))))
    recorded = record["outcome"]
    report.add(record["scenario"]["name"], ours, recorded, differing_run_fields(ours, recorded))


class Report:
    """How many agree, by field."""

    def __init__(self, title: str, fields: Fields, shown_field: str | None) -> None:
        self.title = title
        self.fields = fields
        self.shown_field = shown_field
        self.compared = 0
        self.shown = 0
        self.differing: Counter[str] = Counter()

    def add(self, where: str, ours: dict[str, Any], recorded: dict[str, Any], differing: list[str]) -> None:
        """One comparison."""
        self.compared += 1
        self.differing.update(differing)
        if self.shown_field in differing and self.shown < SHOWN_MAX:
            self.shown += 1
            self.show(where, self.fields[self.shown_field], ours, recorded)

    def show(
        self, where: str, of: Callable[[dict[str, Any]], Any], ours: dict[str, Any], recorded: dict[str, Any]
    ) -> None:
        """Print one difference; of lists the first item that differs."""
        left, right = of(ours), of(recorded)
        if isinstance(left, list) and isinstance(right, list):
            place = next((at for at, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]), 0)
            left, right = left[place : place + 1], right[place : place + 1]
        print(f"{where}\n  ours:     {json.dumps(left)}\n  recorded: {json.dumps(right)}")

    def print(self) -> None:
        """Print the table."""
        print(f"{self.title}: {self.compared} compared")
        for field in self.fields:
            share = 100 * (self.compared - self.differing[field]) / max(1, self.compared)
            print(f"  {field:24}{share:7.2f} %{self.differing[field]:7}")


if __name__ == "__main__":
    main()
