"""
A script played in a simulated world, under the eyes of judges.

`play` carries out the operations of a script at their times, lets all six machines run, plays those controllers that a
cluster with admission checks and foreign integrations has, and in the end waits until nothing more happens. Whatever a
machine raises comes out of it, and so does what a judge finds (`PropertyViolation`).

A request that the API server refuses is no finding: hostile objects are there to be refused.
"""

import enum
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from headgate.core.machine.contract import MERGE_PATCH, Machine
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit
from headgate.events.decisions import PodPlaced
from headgate.events.effects import LeaderElected, PodBound, SnapshotTaken
from headgate.events.facts import ConfigurationObserved, InformersSynced, PodDeleted, PodObserved
from headgate.events.queueing import LocalQueuesSampled
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.machines.snapshotter.decide import Snapshotter
from headgate.testing.cluster import BY_PLURAL
from headgate.testing.cluster.times import rfc3339
from headgate.testing.fuzz.contests import Contests
from headgate.testing.fuzz.operations import START_MS, STOP, Operation, Script, path_of
from headgate.testing.world.world import MACHINES, SCHEDULER_CONFIGURATION, World

ROUND_MS: Final = 5
"""What a round takes, so that what goes on for ever (two workloads that preempt each other) meets its end in time."""
SLICE_MS: Final = 500
"""How often the controllers that are played here look at the cluster."""
REACT_MS: Final = 10_000
"""The same once all operations are done: nothing waits for them but those controllers."""
REST_MS: Final = 1_200_000
"""For how long a run may continue after its last operation: longer than any backoff that scripts configure."""
QUIET_MS: Final = 200_000
"""Nothing new for so long is rest: it is more than any time that scripts configure, but for hostile ones."""
QUIET_PODS_MAX: Final = 300
"""
Rest, too: so many pods have gone with no news but pods.

A Job of two thousand million completions makes new ones for longer than any run.
"""
STEPS_MAX: Final = 30_000
"""Of all processes after the last operation; who takes more does not come to rest."""

_WORKLOADS: Final = BY_PLURAL["kueue.x-k8s.io", "workloads"]
_CHECKS: Final = BY_PLURAL["kueue.x-k8s.io", "admissionchecks"]
_PODS: Final = (PodObserved, PodDeleted, PodPlaced, PodBound)
"""A Job whose pods never come to anything makes new ones for ever: that is the cluster's affair."""
_BOOKKEEPING: Final = (LeaderElected, InformersSynced, LocalQueuesSampled, SnapshotTaken, *_PODS)
_NO_UID: Final = "00000000-0000-4000-a000-00000000dead"


class Ending(enum.Enum):
    """How a run ended."""

    REST = enum.auto()
    """Nothing more will ever happen."""
    PREEMPTION = enum.auto()
    """Nothing but an endless preemption under fair sharing (`headgate.testing.fuzz.contests`)."""
    NONE = enum.auto()
    """It went on."""


class PropertyViolation(AssertionError):  # noqa: N818  (what a judge finds is no error of the judge)
    """Raised by a judge: what must hold does not. `check` names the promise, `about` the object."""

    def __init__(self, check: str, text: str, about: str = "") -> None:
        super().__init__(f"{check}: {text}")
        self.check = check
        self.about = about


class Judge(Protocol):
    """Checks a run: at each commit once it is folded, and at the end. Raises PropertyViolation."""

    def commit(self, world: World, state: State, logged: LoggedCommit) -> None:
        """A commit has just been folded into `state`."""
        ...

    def end(self, world: World, ending: Ending) -> None:
        """The run is over."""
        ...


class Played(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a run, for statistics: a run in which nothing happens proves nothing."""

    operations: int
    accepted: int
    ending: Ending
    events: dict[str, int]
    crashes: int
    restored: int


class Playing:
    """One run of a script. `world` and `log` are there to be looked at when it has failed."""

    def __init__(self, script: Script, judges: Sequence[Judge] = ()) -> None:
        self.script = script
        self.log: list[LoggedCommit] = []
        self.accepted = 0
        self._judges = judges
        self._contests = Contests()
        machines: dict[Producer, Callable[[State], Machine]] = {
            **MACHINES,
            Producer.INFORMER_BRIDGE: partial(
                InformerBridge,
                configuration=ConfigurationObserved(configuration=script.configuration),
                placing=SCHEDULER_CONFIGURATION if script.placing else None,
            ),
            Producer.SNAPSHOTTER: partial(Snapshotter, rules=script.rules),
        }
        self.world = World(
            seed=script.seed,
            cell="fuzz",
            start_ms=START_MS,
            faults=script.faults,
            check=self._check,
            machines=machines,
            round_ms=ROUND_MS,
        )

    def _check(self, state: State, logged: LoggedCommit) -> None:
        self.log.append(logged)
        self._contests.commit(state, logged)
        for judge in self._judges:
            judge.commit(self.world, state, logged)

    def play(self) -> Played:
        """The script to its end. Raises what a machine or a judge raises."""
        world = self.world
        for operation in self.script.operations:
            self._run_until(START_MS + operation.at_ms)
            self._carry_out(operation)
        self._run_until(max(START_MS + SLICE_MS, world.faults.until_ms, world.clock.now_ms + SLICE_MS))
        ending = self._come_to_rest()
        for judge in self._judges:
            judge.end(world, ending)
        events: dict[str, int] = {}
        for logged in self.log:
            for event in logged.commit.events:
                name = type(event).__name__
                events[name] = events.get(name, 0) + 1
        return Played(
            operations=len(self.script.operations),
            accepted=self.accepted,
            ending=ending,
            events=events,
            crashes=world.crashes,
            restored=world.restored,
        )

    def _run_until(self, at_ms: int) -> None:
        world = self.world
        while world.clock.now_ms < at_ms:
            target_ms = min(at_ms, world.clock.now_ms + SLICE_MS)
            world.run(until_ms=target_ms)
            world.advance(target_ms)
            self._react()

    def _come_to_rest(self) -> Ending:
        """Run until nothing is left to do, with all reactions."""
        world, contests = self.world, Contests()
        self._contests = contests
        end_ms, steps_max = world.clock.now_ms + REST_MS, world.steps + STEPS_MAX
        quiet_since_ms, quiet_since, looked = world.clock.now_ms, len(self.log), len(self.log)
        while world.clock.now_ms < end_ms:
            target_ms = world.clock.now_ms + REACT_MS
            world.run(until=lambda world: world.steps > steps_max or contests.is_endless, until_ms=target_ms)
            if contests.is_endless:
                return Ending.PREEMPTION
            if world.steps > steps_max:
                return Ending.NONE
            world.advance(target_ms)
            if self._react() or any(map(_is_news, self.log[looked:])):
                quiet_since_ms, quiet_since = world.clock.now_ms, len(self.log)
            elif world.clock.now_ms - quiet_since_ms >= QUIET_MS or _only_pods_go(self.log[quiet_since:]):
                return Ending.REST
            looked = len(self.log)
        return Ending.NONE

    # --- operations ------------------------------------------------------------------------------------------------

    def _carry_out(self, operation: Operation) -> None:
        if operation.method == STOP:
            self.world.stop(Producer(operation.path), operation.body)
            return
        body = self._filled(operation)
        response = self.world.cluster.request(
            operation.method,
            operation.path,
            operation.query,
            None if body is None else msgspec.json.encode(body),
            MERGE_PATCH if operation.method == "PATCH" else "application/json",
            user=operation.actor,
        )
        self.accepted += response.status < 300
        if response.status >= 500:
            shown = response.body[:300].decode(errors="replace")
            raise PropertyViolation(
                "the simulated cluster", f"{operation.method} {operation.path} gives {response.status}: {shown}"
            )

    def _filled(self, operation: Operation) -> Any:
        parts = operation.path.strip("/").split("/")
        namespace = parts[parts.index("namespaces") + 1] if "namespaces" in parts[:-1] else ""
        current: Any = None
        if operation.method == "PATCH":
            path = operation.path.removesuffix("/status")
            found = self.world.cluster.request("GET", path)
            current = found.json() if found.status == 200 else None
        return self._fill(operation.body, current, namespace)

    def _fill(self, body: Any, current: Any, namespace: str) -> Any:
        """A body with its placeholders replaced by what the cluster has now."""
        if isinstance(body, list):
            return [self._fill(each, None, namespace) for each in body]
        if not isinstance(body, dict):
            return body
        if isinstance(uid := body.get("$uid"), str):
            return self._uid(uid.replace("{namespace}", namespace))
        if isinstance(put := body.get("$put"), list):
            key = body["by"]
            new = {each[key] for each in put}
            kept = [each for each in current if each.get(key) not in new] if isinstance(current, list) else []
            return [*kept, *put]
        below = current if isinstance(current, dict) else {}
        return {name: self._fill(value, below.get(name), namespace) for name, value in body.items()}

    def _uid(self, reference: str) -> str:
        group, plural, namespace, name = reference.split("/", 3)
        found = self.world.cluster.find(BY_PLURAL[group, plural], namespace, name)
        uid: str = _NO_UID if found is None else found["metadata"]["uid"]
        return uid

    # --- controllers that are not ours -----------------------------------------------------------------------------

    def _react(self) -> bool:
        """Whether a controller that is played here had something to do."""
        did = False
        for check in self.world.cluster.objects(_CHECKS):
            if not (check.get("status") or {}).get("conditions"):
                did = (
                    self._write(path_of(_CHECKS, "", check["metadata"]["name"]), {"conditions": [self._said("Active")]})
                    or did
                )
        for workload in list(self.world.cluster.objects(_WORKLOADS)):
            did = self._answer_checks(workload) or did
            did = self._answer_eviction(workload) or did
        return did

    def _answer_checks(self, workload: Any) -> bool:
        checks = (workload.get("status") or {}).get("admissionChecks") or []
        if all(check["state"] != "Pending" for check in checks):
            return False
        now = rfc3339(self.world.clock.now_ms)
        ready = [
            {**check, "state": "Ready", "lastTransitionTime": now} if check["state"] == "Pending" else check
            for check in checks
        ]
        return self._write(self._path(workload), {"admissionChecks": ready})

    def _answer_eviction(self, workload: Any) -> bool:
        """
        The controller of another owner's Workload has stopped the work, and reports it in its own way.

        One that deletes it, and sees it stay for a finalizer, gives its quota back: to delete it again changes nothing.
        """
        owners = workload["metadata"].get("ownerReferences") or []
        if any(owner.get("kind") == "Job" for owner in owners) or self.script.owners == "ignore":
            return False
        conditions = (workload.get("status") or {}).get("conditions") or []
        is_true = {each["type"] for each in conditions if each["status"] == "True"}
        if not {"Evicted", "QuotaReserved"} <= is_true or "Finished" in is_true:
            return False
        path = self._path(workload)
        match self.script.owners:
            case "delete" if "deletionTimestamp" not in workload["metadata"]:
                return self.world.cluster.request("DELETE", path, user="owner").status < 300
            case "finish":
                said = [self._said("Finished")]
            case _:
                said = [self._said("QuotaReserved", "False"), self._said("Admitted", "False")]
        types = {each["type"] for each in said}
        return self._write(path, {"conditions": [*(each for each in conditions if each["type"] not in types), *said]})

    def _path(self, workload: Any) -> str:
        return path_of(_WORKLOADS, workload["metadata"]["namespace"], workload["metadata"]["name"])

    def _said(self, condition: str, status: str = "True") -> dict[str, str]:
        now = rfc3339(self.world.clock.now_ms)
        return {"type": condition, "status": status, "reason": "Stopped", "message": "", "lastTransitionTime": now}

    def _write(self, path: str, status: Any) -> bool:
        body = msgspec.json.encode({"status": status})
        return self.world.cluster.request("PATCH", f"{path}/status", {}, body, MERGE_PATCH, user="owner").status < 300


def _is_news(logged: LoggedCommit) -> bool:
    """Whether a commit has more than the progress of the processes and the passing of time."""
    return not all(isinstance(event, _BOOKKEEPING) for event in logged.commit.events)


def _only_pods_go(quiet: Iterable[LoggedCommit]) -> bool:
    """Whether so many pods are gone by these commits, which bring no news, that it may go on so for ever."""
    return sum(isinstance(event, PodDeleted) for logged in quiet for event in logged.commit.events) >= QUIET_PODS_MAX


def tail(log: Iterable[LoggedCommit], about: str, count: int = 40) -> list[str]:
    """The last events of a log, those about one object if it is named there at all, as lines to read."""
    lines = [
        f"{logged.seq} {(logged.commit.time_ms - START_MS) / 1000:.3f} {logged.commit.producer.value} {text}"
        for logged in log
        for text in (msgspec.json.encode(event).decode()[:600] for event in logged.commit.events)
    ]
    named = [line for line in lines if about and about in line]
    return (named or lines)[-count:]
