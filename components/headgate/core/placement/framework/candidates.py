"""What preemption found: which pods would have to go from which node, for plans and explanations."""

from collections.abc import Mapping

import msgspec

from headgate.core.placement.framework.status import PluginStatus


class PreemptionCandidate(msgspec.Struct, frozen=True):
    """
    A node that the pod would fit on without some pods.

    `victims` are their keys, from the most important to the least; `pdb_violations` is how many of them have a
    disruption budget that does not allow it.
    """

    victims: tuple[str, ...]
    pdb_violations: int


class PreemptionDetails(msgspec.Struct, frozen=True):
    """
    The `details` of a preemption's PostFiltered.

    `candidates` are by node, `hopeless` why preemption does not help on the other nodes that were tried, `best` the
    candidates that are equal by all criteria, in the order of their names; the first of them is nominated.
    """

    candidates: Mapping[str, PreemptionCandidate] = {}
    hopeless: Mapping[str, PluginStatus] = {}
    best: tuple[str, ...] = ()
