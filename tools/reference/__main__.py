"""Writes the generated pages, or with `--check` names those that differ. 0 when all is as it should be."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tools.reference.cli import cli_page
from tools.reference.configuration import configuration_page
from tools.reference.events import events_page
from tools.reference.http import http_page
from tools.reference.metrics import metrics_page
from tools.reference.settings import settings_page

PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "cli": cli_page,
    "configuration": configuration_page,
    "events": events_page,
    "http": http_page,
    "metrics": metrics_page,
    "settings": settings_page,
}
FOLDER: Final = Path(__file__).parents[2] / "docs" / "reference"


def main(arguments: list[str]) -> int:
    """Write the pages, or compare them."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m tools.reference [--check]", file=sys.stderr)
        return 2
    stale = []
    for name, make in PAGES.items():
        file, content = FOLDER / f"{name}.md", make()
        if not file.is_file() or file.read_text() != content:
            stale.append(file)
            if not arguments:
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content)
    if not arguments:
        return 0
    for file in stale:
        print(f"{file} differs from the code: run `make schemas` and commit it", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
