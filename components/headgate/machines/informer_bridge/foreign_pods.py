"""
Foreign pods: what pods that are neither of a workload nor bound or ungated by Headgate use of each node.

Placement in topologies subtracts it from the nodes' capacity. A fact for each such pod would cost the log two events
for every short pod of the cluster. So once a flavor has a topology, these pods are summed up here, and the log has one
`node.usage_observed` for a node whose sum has changed:

- An increase is appended at once, so that what is taken is not assigned again; further ones of the same node within
  INCREASES_MS follow together.
- A decrease is appended after DECREASES_MS, together with those of all other nodes. Until then its place in the log may
  be taken by the next pod: where pods replace each other, nothing is appended at all.

So a node costs at most 1000 / INCREASES_MS + 1 events a second, however many pods come and go.

A sum does not show its pods: while there are sums, the watch of pods is never resumed from a mark but begins with a
list, and no sum is appended before the list is complete. The first flavor with a topology may appear while the log has
facts of foreign pods; they are taken over from there, and deleted once the mark of pods is void. While Headgate places
pods, it has objects of them instead, and the uses follow from these.

Owned by the bridge's machine, and equally pure. Memory: a tuple of a node and an interned request per pod.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from headgate.core.api.names import KUEUE, SCHEDULER_NAME
from headgate.core.config import feature_gates
from headgate.core.kubernetes.effective_requests import pod_requests
from headgate.core.kubernetes.quantities import canonical
from headgate.core.reading.decoding import UnreadableObjectError, read
from headgate.core.state.attribution import about
from headgate.core.state.tables import State
from headgate.events import facts
from headgate.events.configuration import Configuration
from headgate.events.ids import PodKey, Uid, UnixMs
from headgate.events.objects import Pod, ResourceFlavorSpec

INCREASES_MS: Final = 200
"""The shortest time between two events about increases of one node."""

DECREASES_MS: Final = 1000
"""How long a decrease waits for others, and for the pod that takes its place."""

PODS: Final = "pods"
"""The resource of which every pod takes one."""

REQUESTS_MAX: Final = 10_000
"""The most distinct requests that are interned. Beyond it the table is cleared, which costs memory and nothing else."""

Requests = tuple[tuple[str, int], ...]


class _Use(NamedTuple):
    node: str
    requests: Requests


def is_foreign(pod: Pod) -> bool:
    """Whether a pod is neither of a workload nor bound or ungated by Headgate."""
    return (
        pod.workload == ""
        and pod.managed is None
        and pod.spec.scheduler_name != SCHEDULER_NAME
        and not any(gate.name.startswith(KUEUE) for gate in pod.spec.scheduling_gates)
    )


class ForeignPods:
    """The sums by node. See the module's docstring. `is_summing`: the log gets sums, and no facts of foreign pods."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.is_summing = False
        self._uses: dict[PodKey, _Use] = {}
        self._totals: dict[str, dict[str, int]] = {}
        self._interned: dict[Requests, Requests] = {}
        self._changed: dict[str, None] = dict.fromkeys(state.node_usage)
        """Nodes whose sum may differ from the log's."""
        self._increased_ms: dict[str, UnixMs] = {}
        """When an increase of a node was last appended, while it is less than INCREASES_MS ago."""
        self._decrease_ms: UnixMs | None = None
        """When the decreases are due; None when there are none."""
        self._to_drop: dict[PodKey, None] = {}
        """Pods of which the log has a fact and is to have none."""

    # --- turning it on ---------------------------------------------------------------------------------------------

    def start_if_needed(self, flavors: Iterable[ResourceFlavorSpec], configuration: Configuration) -> bool:
        """Begin to sum when one of these flavors has a topology, or the log has sums. Whether it has begun."""
        enabled = feature_gates.enabled(configuration, feature_gates.TOPOLOGY_AWARE_SCHEDULING)
        if not self._state.node_usage and not (enabled and any(flavor.topology_name for flavor in flavors)):
            return False
        self.is_summing = True
        for key, record in self._state.pods.items():
            with about("Pod", key):
                if is_foreign(record.pod):
                    self.observe(key, record.pod)
                    self._to_drop[key] = None
        for name, manifest in self._state.objects.get(PODS, {}).items():
            key = PodKey(name)
            if key not in self._state.pods:
                with about("Pod", key):
                    self._observe_object(key, manifest)
        return True

    def _observe_object(self, key: PodKey, manifest: msgspec.Raw) -> None:
        """A pod of which the log has what placement reads: all that its use follows from."""
        try:
            fact = read(PODS, bytes(manifest)).fact
        except UnreadableObjectError:
            # It was passed over when it was observed, too.
            return
        if isinstance(fact, facts.PodObserved) and is_foreign(fact.spec):
            self.observe(key, fact.spec)

    # --- observations ----------------------------------------------------------------------------------------------

    def observe(self, key: PodKey, pod: Pod) -> None:
        """A foreign pod exists. One that requests a topology uses what its workload was assigned."""
        node = pod.spec.node_name
        if not node or pod.topology_aware:
            self._free(key)
            return
        found = tuple(sorted((resource, value) for resource, value in pod_requests(pod.spec).items() if value))
        if len(self._interned) >= REQUESTS_MAX:
            self._interned.clear()
        use = _Use(self._one_name(node), self._interned.setdefault(found, found))
        if self._uses.get(key) == use:
            return
        self._free(key)
        self._uses[key] = use
        self._add(use, 1)

    def _one_name(self, node: str) -> str:
        """The one string for the name of a node."""
        known = self._state.nodes.get(node)
        return known.name if known is not None else node

    def forget(self, key: PodKey) -> None:
        """A pod is gone, has ended, or is not foreign: the facts about it are made as of any other."""
        self._to_drop.pop(key, None)
        self._free(key)

    def _free(self, key: PodKey) -> None:
        use = self._uses.pop(key, None)
        if use is not None:
            self._add(use, -1)

    def pods(self) -> Iterable[PodKey]:
        """The pods in the sums."""
        return self._uses

    def _add(self, use: _Use, sign: int) -> None:
        total = self._totals.setdefault(use.node, {})
        for resource, value in (*use.requests, (PODS, 1)):
            left = total.get(resource, 0) + sign * value
            if left:
                total[resource] = left
            else:
                total.pop(resource, None)
        if not total:
            del self._totals[use.node]
        self._changed[use.node] = None

    # --- for the log -----------------------------------------------------------------------------------------------

    def take_facts(self, now_ms: UnixMs, room_for: int) -> Iterator[facts.Fact]:
        """The facts that are due, at most `room_for`. Only call it when the state has all that was appended."""
        self._increased_ms = {
            node: at_ms for node, at_ms in self._increased_ms.items() if now_ms < at_ms + INCREASES_MS
        }
        taken = 0
        lets_decrease = self._decrease_ms is not None and now_ms >= self._decrease_ms
        for node in tuple(self._changed):
            if taken == room_for:
                return
            with about("Node", node):
                if self._is_due(node, now_ms, lets_decrease=lets_decrease):
                    yield self._fact(node)
                    taken += 1
        if lets_decrease:
            self._decrease_ms = None
        yield from self._drops(room_for - taken)

    def _is_due(self, node: str, now_ms: UnixMs, *, lets_decrease: bool) -> bool:
        known, total = self._state.node_usage.get(node, {}), self._totals.get(node, {})
        if known == total:
            del self._changed[node]
            return False
        if self._has_increased(node):
            if node in self._increased_ms:
                return False
            self._increased_ms[node] = now_ms
            return True
        if not lets_decrease and self._decrease_ms is None:
            self._decrease_ms = UnixMs(now_ms + DECREASES_MS)
        return lets_decrease

    def _fact(self, node: str) -> facts.NodeUsageObserved:
        """It stays among the changed ones until the state has it."""
        total = self._totals.get(node, {})
        requests = {name: canonical(name, value) for name, value in sorted(total.items()) if name != PODS}
        return facts.NodeUsageObserved(node=node, requests=dict(requests), pods=total.get(PODS, 0))

    def _drops(self, room_for: int) -> Iterator[facts.Fact]:
        """
        The end of facts of foreign pods, once their sums are in the log.

        Not before the mark of pods is void: a watch that is resumed would not show them again.
        """
        if not self._to_drop or PODS in self._state.resource_versions:
            return
        for key in tuple(self._to_drop)[: max(0, room_for)]:
            del self._to_drop[key]
            record = self._state.pods.get(key)
            if record is not None and is_foreign(record.pod):
                yield facts.PodDeleted(pod=key, uid=Uid(record.pod.uid))

    def voids_mark(self) -> bool:
        """Whether the mark of pods in the log has to be revoked."""
        return self.is_summing and PODS in self._state.resource_versions

    def is_behind(self) -> bool:
        """Whether more is used of a node than the log has."""
        return any(self._has_increased(node) for node in self._changed)

    def _has_increased(self, node: str) -> bool:
        known = self._state.node_usage.get(node, {})
        return any(value > known.get(resource, 0) for resource, value in self._totals.get(node, {}).items())

    def wake_ms(self) -> UnixMs | None:
        """When facts are due that are not yet; None when there are none."""
        waiting = [UnixMs(at_ms + INCREASES_MS) for node, at_ms in self._increased_ms.items() if node in self._changed]
        return min([*waiting, *([self._decrease_ms] if self._decrease_ms is not None else [])], default=None)
