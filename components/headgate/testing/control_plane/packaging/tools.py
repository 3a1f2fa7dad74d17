"""
The tools, each a Go module of its own below `modules/`, built into the user's cache folder as the operators are.

The folder's name is a digest of all that decides what is built, so a changed pin is another folder.
"""

import os
from pathlib import Path
from typing import Final

import msgspec

from headgate.testing.control_plane.assets import NoAssetsError, folder_of
from headgate.testing.control_plane.build import build_package, find_go, locked, say, step

MODULES: Final = Path(__file__).parent / "modules"
HELM: Final = "helm"
PROMTOOL: Final = "promtool"


class Tool(msgspec.Struct, frozen=True):
    """A program: its folder below `MODULES`, which is its name, its main package, and build tags for it."""

    name: str
    package: str
    tags: str = ""

    @property
    def binary(self) -> Path:
        """The program, where it is or will be."""
        return folder_of("packaging", self.name, self, MODULES / self.name) / self.name

    @property
    def is_built(self) -> bool:
        """Whether it can be run."""
        return os.access(self.binary, os.X_OK)


TOOLS: Final = (
    Tool(HELM, "helm.sh/helm/v4/cmd/helm"),
    # Without service discovery, whose clients of many clouds are most of Prometheus' dependencies.
    Tool(PROMTOOL, "github.com/prometheus/prometheus/cmd/promtool", "remove_all_sd"),
)


def find_tool(name: str) -> Path:
    """The program. Raises NoAssetsError, with one line for people, when it is not built."""
    found = next(each for each in TOOLS if each.name == name)
    if not found.is_built:
        raise NoAssetsError(f"{name} is not built: run `make operators` (needs Go)")
    return found.binary


def build_tools() -> None:
    """Build what is missing, with a line for each. Raises NoAssetsError without Go, BuildError when Go fails."""
    for each in TOOLS:
        if each.is_built:
            say(f"{each.name} is {each.binary}")
            continue
        go = find_go(f"{each.name} is not built, and its tests are skipped")
        folder = each.binary.parent
        with locked(folder), step(f"{each.name} into {folder}"):
            build_package(go, each.package, MODULES / each.name, each.binary, tags=each.tags)
