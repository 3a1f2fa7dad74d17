"""Writes the generated pages, or with `--check` names those that differ. 0 when all is as it should be."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tools.generated import write_or_compare
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
    return write_or_compare(arguments, {FOLDER / f"{name}.md": make() for name, make in PAGES.items()}, "the code")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
