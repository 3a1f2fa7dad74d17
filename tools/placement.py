"""
How far placement agrees with recordings of the kube-scheduler, per class and field.

    .venv/bin/python -m tools.placement FILE.jsonl.gz ...                    a table
    .venv/bin/python -m tools.placement FILE --field scores.raw [--name N]   the first differences in one field
"""

import argparse
import gzip
import json
from collections import Counter
from pathlib import Path

from headgate.testing.reference.placement.comparing import FIELDS, differing_fields
from headgate.testing.reference.placement.recorded import Following
from headgate.testing.reference.placement.scenario import read_placement_scenario

SHOWN_MAX = 5


def main() -> None:
    """Compare, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--field")
    parser.add_argument("--name", default="")
    options = parser.parse_args()
    for file in options.files:
        compare(file, options.field, options.name)


def compare(file: Path, field: str | None, name: str) -> None:
    """Compare the attempts of one file, each from the recorded state."""
    attempts, differing, shown = 0, Counter[str](), 0
    with gzip.open(file) as lines:
        for line in lines:
            record = json.loads(line)
            if name not in record["scenario"]["name"]:
                continue
            following = Following(read_placement_scenario(record), record["outcome"]["steps"])
            for ours, recorded in following.attempts():
                attempts += 1
                fields = differing_fields(ours, recorded)
                differing.update(fields)
                if field in fields and shown < SHOWN_MAX:
                    shown += 1
                    show(record["scenario"]["name"], field, ours, recorded)
    print(f"{file.name}: {attempts} attempts")
    for each in FIELDS:
        share = 100 * (attempts - differing[each]) / attempts
        print(f"  {each:24}{share:7.2f} %{differing[each]:7}")


def show(name: str, field: str, ours: dict[str, object], recorded: dict[str, object]) -> None:
    """Print one difference."""
    print(f"{name}: attempt {recorded['n']} of {recorded['pod']}")
    print(f"  ours:     {json.dumps(FIELDS[field](ours))}")
    print(f"  recorded: {json.dumps(FIELDS[field](recorded))}")


if __name__ == "__main__":
    main()
