"""
The tools of packaging, for tests: helm and promtool, built from pinned Go modules (`make operators`).

Owns: which they are, and their build.
Called by: tests of deploy/, `make operators`.
May import: cli, processes, adapters, machines, core, events.
"""

from headgate.testing.control_plane.packaging.tools import HELM, PROMTOOL, TOOLS, build_tools, find_tool

__all__ = ["HELM", "PROMTOOL", "TOOLS", "build_tools", "find_tool"]
