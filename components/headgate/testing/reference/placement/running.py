"""
A whole run of a scenario under a virtual clock, as the recordings describe it, with our own decisions.

At each second: pods whose deletion is due disappear, the script's actions happen, backoffs end, and one pod is tried.
What the attempt wrote (victims, nomination, volumes, binding) reaches the cluster and the queue at once. When nothing
is to be tried, the clock jumps to the next second at which something is due. Pure: two runs of a scenario are equal.
"""

from typing import Final

from headgate.core.config.fields import ConfigurationError
from headgate.core.kubernetes.merge_patch import merge_patched
from headgate.core.placement.attempt import PlacementAttempt, attempt
from headgate.core.placement.configuration.profiles import read_profiles
from headgate.core.placement.framework.plugin import ObjectWrite
from headgate.core.placement.framework.runtime import Framework
from headgate.core.placement.framework.status import Code
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.core.placement.queue import Popped
from headgate.core.placement.queue_entry import Place, QueuedPod, QueueLimits
from headgate.core.placement.queue_hints import queue_profile
from headgate.core.placement.scan import NodeOrder
from headgate.core.plan.reading import PlanInputError
from headgate.testing.reference.placement.changes import AskingQueue, ScenarioChanges
from headgate.testing.reference.placement.scenario import Json, PlacementScenario
from headgate.testing.reference.placement.telling import told_attempt, told_profiles
from headgate.testing.reference.placement.volume_controller import answers

SECONDS_MAX: Final = 100_000
"""A run that is not over by then never will be."""


class Run:
    """The run of a scenario. `steps` has what has happened so far, in the schema of the recordings."""

    def __init__(self, scenario: PlacementScenario) -> None:
        self._scenario = scenario
        self.profiles = read_profiles(scenario.config, REGISTRY)
        self._changes = ScenarioChanges(scenario)
        cluster = self._changes.objects.cluster
        self._frameworks = {name: Framework(profile, cluster) for name, profile in self.profiles.by_name.items()}
        limits = QueueLimits(
            backoff_ms_initial=1000 * self.profiles.initial_backoff_s,
            backoff_ms_max=1000 * self.profiles.max_backoff_s,
        )
        by_name = {name: queue_profile(framework) for name, framework in self._frameworks.items()}
        self._queue = AskingQueue(cluster, by_name, limits)
        self._changes.begin(self._queue)
        self._scan_start = 0
        self._next_action = 0
        self._messages: dict[str, str] = {}

    def outcome(self) -> Json:
        """Run to the end; what has happened."""
        second = 0
        while second <= SECONDS_MAX:
            self._changes.second = second
            self._pass_time()
            if second >= self._scenario.scheduling_starts_at and self._try_next():
                second += 1
                continue
            following = self._next_second(second)
            if following is None:
                return self._told("idle")
            second = following
        return self._told("limit")

    # --- time ------------------------------------------------------------------------------------------------------

    def _pass_time(self) -> None:
        self._changes.delete_due()
        script = self._scenario.script
        while self._next_action < len(script) and script[self._next_action].at <= self._changes.second:
            self._changes.act(self._next_action)
            self._next_action += 1
        self._changes.end_backoffs()

    def _next_second(self, second: int) -> int | None:
        """The next second at which something is due, None when nothing is any more."""
        due = self._changes.deletions_due()
        if self._next_action < len(self._scenario.script):
            due.append(self._scenario.script[self._next_action].at)
        waiting = [queued for queued in self._queue.pods() if queued.place in (Place.ACTIVE, Place.BACKOFF)]
        if waiting:
            due.append(self._scenario.scheduling_starts_at)
            due.extend(self._backoff_end(queued) for queued in waiting if queued.place == Place.BACKOFF)
        return min((each for each in due if each > second), default=None)

    def _backoff_end(self, queued: QueuedPod) -> int:
        """The first second in which the backoff of a pod is over."""
        assert queued.rank is not None, f"{queued.pod.key} is in no place"
        return int(queued.rank[0] - self._scenario.start_ms) // 1000 + 1

    # --- attempts --------------------------------------------------------------------------------------------------

    def _try_next(self) -> bool:
        """Try the next pod; False when none waits to be tried."""
        popped = self._queue.pop()
        if popped is None:
            return False
        queued = popped.queued
        framework = self._frameworks[queued.pod.spec.scheduler_name]
        percentage = self.profiles.percentage_of(framework.profile)
        scan = framework.cluster.index(NodeOrder).scan(self._scan_start, percentage)
        made = attempt(framework, queued.pod, scan)
        self._scan_start = (self._scan_start + made.looked) % max(1, len(scan.order))
        told = told_attempt(made, framework.profile.scheduler_name, queued.attempts, popped.place.value)
        if made.node:
            self._place(framework, popped, made, told)
        else:
            self._leave(popped, made, told)
        return True

    def _place(self, framework: Framework, popped: Popped, made: PlacementAttempt, told: Json) -> None:
        pod, node = popped.queued.pod, framework.cluster.node(made.node)
        assert node is not None, f"{made.node} is gone"
        reserved = framework.binding.reserve(made.cycle, node)
        assert reserved.status.is_success, f"{pod.key}: {reserved.status.message}"
        self._changes.step({"attempt": told})
        self._queue.done(popped.queued)
        self._changes.assume(pod.key)
        for assumed in reserved.assumed:
            framework.cluster.put(assumed.kind, assumed.key, assumed.object)
        writes = framework.binding.pre_bind(made.cycle, node).writes
        for write in writes:
            self._write(write)
        if writes and pod.nominated_node_name != made.node:
            # While it is being prepared, others can see where the pod is expected.
            self._changes.nominate(pod.key, made.node)
        left = framework.binding.pre_bind(made.cycle, node)
        assert left.status.is_success, f"{pod.key}: {left.status.message}"
        self._changes.bind(pod.key, made.node)

    def _write(self, write: ObjectWrite) -> None:
        """What an object is to have before the pod is bound is written, and answered."""
        manifest = merge_patched(self._changes.objects.get(write.kind, write.key) or {}, write.patch)
        self._changes.write(manifest)
        for answer in answers(self._changes.objects, manifest):
            self._changes.write(answer)

    def _leave(self, popped: Popped, made: PlacementAttempt, told: Json) -> None:
        queued = popped.queued
        now_ms = self._changes.now_ms
        pending = tuple(status.plugin for status, _ in made.verdicts.counts() if status.code == Code.PENDING)
        self._messages[queued.pod.key] = made.message
        if made.nominated is not None:
            self._changes.objects.cluster.nominate(queued.pod.key, made.nominated)
        place = self._queue.failed(queued, made.rejectors, pending, now_ms)
        if place is not None:
            told["to"] = place.value
        self._changes.step({"attempt": told})
        if made.post_filtered is not None:
            for victim in made.post_filtered.victims:
                self._changes.evict(victim)
            for cleared in made.post_filtered.unnominated:
                self._changes.nominate(cleared, "")
            for write in made.post_filtered.writes:
                self._write(write)
        if made.nominated is not None and made.nominated != queued.pod.nominated_node_name:
            self._changes.nominate(queued.pod.key, made.nominated)

    # --- the end ---------------------------------------------------------------------------------------------------

    def _told(self, stop: str) -> Json:
        pending = {}
        for queued in sorted(self._queue.pods(), key=lambda each: each.pod.key):
            pending[queued.pod.key] = self._told_pending(queued)
        return {
            "profiles": told_profiles(self.profiles),
            "steps": self._changes.steps,
            "stop": stop,
            "bound": self._changes.bound(),
            "pending": pending,
        }

    def _told_pending(self, queued: QueuedPod) -> Json:
        assert queued.place is not None, f"{queued.pod.key} is in no place"
        rejectors = queued.rejectors or ((queued.gated_by,) if queued.gated_by else ())
        told: Json = {"queue": queued.place.value, "rejectors": list(rejectors)}
        if queued.pod.nominated_node_name:
            told["nominated"] = queued.pod.nominated_node_name
        message = self._messages.get(queued.pod.key)
        if message and queued.place != Place.GATED:
            told["message"] = message
        return told


def outcome_of(scenario: PlacementScenario) -> Json:
    """The outcome of a scenario. Raises PlanInputError."""
    try:
        return Run(scenario).outcome()
    except PlanInputError as error:
        raise PlanInputError(f"scenario {scenario.name}: {error}") from error
    except ConfigurationError as error:
        raise PlanInputError(f"scenario {scenario.name}: config: {error}") from error
