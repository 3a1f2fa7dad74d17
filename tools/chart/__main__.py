"""Writes the chart's templates, or with `--check` names those that differ. 0 when all is as it should be."""

import json
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from tools.chart.manifests import KUBERNETES, ROOT
from tools.chart.render import DriftError, templates
from tools.chart.schema import schema
from tools.generated import write_or_compare

CHART: Final = ROOT / "deploy" / "helm" / "headgate"
WRITTEN_BY_HAND: Final = frozenset({"_helpers.tpl", "NOTES.txt", "config.yaml", "setup.yaml", "dashboards.yaml"})
"""What the manifests have no part for: names, settings as text, and the Jobs that install definitions."""


def generated() -> dict[Path, str]:
    """Every generated file of the chart. Raises DriftError."""
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    files = {
        **templates(values),
        "values.schema.json": json.dumps(schema(values), indent=2) + "\n",
        **{
            f"files/dashboards/{each.name}": each.read_text()
            for each in sorted((KUBERNETES / "monitoring" / "dashboards").glob("*.json"))
        },
    }
    return {CHART / path: text for path, text in files.items()}


def main(arguments: list[str]) -> int:
    """Write the files, or compare them."""
    try:
        files = generated()
    except DriftError as error:
        print(error, file=sys.stderr)
        return 1
    folders = [CHART / "templates", CHART / "files"]
    return write_or_compare(arguments, files, "deploy/kubernetes", folders=folders, by_hand=WRITTEN_BY_HAND)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
