"""
Executes the machines' calls: the Kubernetes adapter as a `Carrier`.

Calls are derived from folded commits, so everything here happens after the decision is durable. The adapter repeats a
call until it has a definite answer; its health is part of the process's status.
"""

from collections.abc import Iterable, Mapping

from headgate.adapters.jetstream.health import Dependency
from headgate.adapters.kubernetes.call import CallExecutor, CallSettings, KubeCall
from headgate.adapters.kubernetes.transport import Transport
from headgate.core.machine.call_object import body_of
from headgate.core.machine.contract import Call, Completed
from headgate.processes.runtime.leadership import NoCarrier
from headgate.processes.runtime.process_status import KUBERNETES
from headgate.processes.runtime.settings import KubernetesSettings


class KubernetesCarrier(NoCarrier):
    """Calls to one API server, at most `in_flight_max` at once and `qps` a second."""

    def __init__(self, transport: Transport, settings: KubernetesSettings) -> None:
        self.executor = CallExecutor(
            transport,
            CallSettings(in_flight_max=settings.in_flight_max, qps=settings.qps, burst=settings.burst),
        )

    async def call(self, call: Call) -> Completed:
        """Carry out a call until it has a definite answer. Raises ObjectFailedError when its body cannot be sent."""
        outcome = await self.executor.run(
            KubeCall(
                id=call.id,
                method=call.method,
                path=call.path,
                query=call.query,
                body=body_of(call),
                content_type=None if call.body is None else call.content_type or "application/json",
                key=call.lane,
            )
        )
        return Completed(outcome.id, outcome.status, outcome.body)

    def retries(self) -> Iterable[tuple[float, Mapping[str, str]]]:
        """The number of repeated calls, by cause."""
        return ((count, {"cause": cause}) for cause, count in self.executor.counters.by_cause().items())

    def probe(self, started_ms: int) -> Dependency:
        """Whether calls get through."""
        health = self.executor.health
        since_ms = started_ms if health.failing_since is None else int(health.failing_since * 1000)
        return Dependency(name=KUBERNETES, ok=health.ok, since_ms=since_ms, error=health.error)
