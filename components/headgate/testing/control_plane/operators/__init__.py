"""
The operators of job kinds for tests: built from pinned Go modules (`make operators`), run on a control plane.

    async with operator(plane, "jobset", folder): ...
    await define(plane, "trainer")  # the definitions of its kinds, and nothing that runs

Owns: which operators there are, their build, and how each is run outside a cluster.
Called by: tests marked `kube`, `make operators`.
May import: cli, processes, adapters, machines, core, events.
"""

from headgate.testing.control_plane.operators.build import fetch_definitions
from headgate.testing.control_plane.operators.catalog import OPERATORS, Operator, find_operator
from headgate.testing.control_plane.operators.running import define, operator

__all__ = ["OPERATORS", "Operator", "define", "fetch_definitions", "find_operator", "operator"]
