"""
The controllers of a simulated cluster, as one thing that a clock drives.

`step(now_ms)` runs them in a fixed order, again and again until none has anything left to do at that time;
`next_due_ms()` is when the passing of time alone gives them work. A simulation advances its virtual clock to the
smallest of all due times; the HTTP server waits for that long, or for a change.
"""

from typing import Final, Protocol

import msgspec

from headgate.testing.cluster.controllers.disruption import DisruptionController
from headgate.testing.cluster.controllers.garbage import GarbageCollector
from headgate.testing.cluster.controllers.job_controller import JobController
from headgate.testing.cluster.controllers.namespaces import NamespaceController
from headgate.testing.cluster.controllers.recorder import EventRecorder
from headgate.testing.cluster.nodes.first_fit import FirstFitScheduler
from headgate.testing.cluster.nodes.first_node import FirstNode
from headgate.testing.cluster.nodes.kubelet import Kubelet
from headgate.testing.cluster.nodes.node_usage import NodeUsage
from headgate.testing.cluster.nodes.taint_eviction import TaintEviction
from headgate.testing.cluster.storage.registry import Registry

ROUNDS_MAX: Final = 10_000
"""Rounds at one moment after which two controllers are taken to be undoing each other's work."""


class Controller(Protocol):
    """One loop of the cluster."""

    def step(self, now_ms: int) -> int:
        """Do what changed and what is due; returns how many writes that took."""
        ...

    def next_due_ms(self) -> int | None:
        """When there is something to do next, if nothing else happens."""
        ...


class ControllerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How the controllers behave where objects do not say."""

    run_ms: int = 1000
    """How long a pod that may end runs, without the annotation `headgate.dev/run-ms`."""
    start_ms: int = 0
    """How long a bound pod takes to become ready, without `headgate.dev/start-ms`."""
    default_scheduler: bool = False
    """Whether pods with `schedulerName: default-scheduler` are bound, first fit."""
    first_node: bool = False
    """Whether a node is registered when a pod waits and the cluster has none."""
    job_batch_ms: int = 0
    """How long the Job controller gathers what pods do before it looks at their Job; 1000 in a real cluster."""
    taint_eviction: bool = False
    """Whether pods that do not tolerate a node's NoExecute taints are deleted."""
    events: bool = False
    """Whether the Job controller records Events, at a write each."""


class Controllers:
    """Kubelets, Job, namespace and disruption controllers, garbage collector; a first-fit scheduler if enabled."""

    def __init__(self, registry: Registry, options: ControllerOptions) -> None:
        usage = NodeUsage(registry.store)
        self._registry = registry
        self._settled_rv = 0
        self.kubelet = Kubelet(registry, usage, run_ms=options.run_ms, start_ms=options.start_ms)
        recorder = EventRecorder(registry, "job-controller") if options.events else None
        self._loops: list[Controller] = [JobController(registry, recorder, batch_ms=options.job_batch_ms)]
        if options.first_node:
            self._loops.append(FirstNode(registry))
        if options.default_scheduler:
            self._loops.append(FirstFitScheduler(registry, usage))
        if options.taint_eviction:
            self._loops.append(TaintEviction(registry))
        self._loops += [
            self.kubelet,
            GarbageCollector(registry),
            NamespaceController(registry),
            DisruptionController(registry),
        ]

    def step(self, now_ms: int) -> int:
        """Run every controller until all are content at this time; returns how many writes that took."""
        total = 0
        for _ in range(ROUNDS_MAX):
            writes = sum(loop.step(now_ms) for loop in self._loops)
            if not writes:
                self._settled_rv = self._registry.store.rv
                return total
            total += writes
        raise RuntimeError(
            f"controllers still write after {ROUNDS_MAX} rounds at {now_ms} ms: two of them undo each other's work"
        )

    def next_due_ms(self) -> int | None:
        """The earliest time at which there is something to do: now, if anything was written since the last step."""
        if self._registry.store.rv != self._settled_rv:
            return self._registry.clock()
        dues = [due for loop in self._loops if (due := loop.next_due_ms()) is not None]
        return min(dues, default=None)
