"""What must hold of topologies at each commit, as a judge of the fuzzer's runs."""

from collections.abc import Iterable

from tests.simulation.topology_oracle import crowded, indexed_otherwise, overfull, scattered

from headgate.core import fold
from headgate.core.state.tables import State
from headgate.events import decisions, facts
from headgate.events.commit import LoggedCommit
from headgate.events.ids import Seq
from headgate.testing.fuzz import Ending, PropertyViolation
from headgate.testing.world.world import World

REBUILD_EVERY = 20
"""After so many commits what the state knows of topologies is compared with that of a state from its bytes."""

_DECIDED_ELSEWHERE = (
    facts.NodeObserved,
    facts.NodeDeleted,
    facts.NodeUsageObserved,
    facts.PodObserved,
    facts.ResourceFlavorObserved,
    facts.ResourceFlavorDeleted,
    facts.TopologyObserved,
    facts.TopologyDeleted,
    facts.ConfigurationObserved,
    facts.WorkloadObserved,
    facts.LimitRangeObserved,
    facts.RuntimeClassObserved,
)
"""What changes the nodes or what is used of them; a decision on a position before it cannot know it."""


class Places:
    """
    Domains hold what they are assigned; a required domain is one; no domain gets a pod too many.

    And what is indexed of them follows from the tables.
    """

    def __init__(self) -> None:
        self._changed_at = Seq(0)
        self.judged = 0

    def commit(self, world: World, state: State, logged: LoggedCommit) -> None:
        for event in logged.commit.events:
            match event:
                case decisions.QuotaReserved() | decisions.TopologyAssigned():
                    if logged.commit.decided_at >= self._changed_at:
                        self.judged += 1
                        self._judge("domains", (*overfull(state, event.workload), *scattered(state, event.workload)))
                case decisions.PodsAssigned() if event.workload in state.workloads:
                    self._judge("pods of domains", crowded(state, event))
                case _ if isinstance(event, _DECIDED_ELSEWHERE):
                    self._changed_at = logged.seq
                case _:
                    pass
        self._judge("index of domains", indexed_otherwise(state))
        if logged.seq % REBUILD_EVERY == 0:
            again = fold.restore(state.cell, fold.encode(state)).index
            same = again.topology_usage == state.index.topology_usage and again.taken == state.index.taken
            self._judge("index of domains", () if same else ("a state from its bytes has another",))

    def _judge(self, check: str, found: Iterable[str]) -> None:
        for text in found:
            raise PropertyViolation(check, text)

    def end(self, world: World, ending: Ending) -> None:
        """No finding is left at the end."""
