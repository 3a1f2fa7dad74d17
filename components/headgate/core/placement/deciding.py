"""
Deciding a pod on a state: one attempt, and the events that it amounts to.

`PlacementDecider` is the machine of the scheduler without its queue: which pod is tried when comes from outside. So the
scheduler, verification and `headgate place` decide alike. A decision is supposed in the view at once, and the next one
is taken on what it leaves (`PlacementView.suppose`); nothing is written into the state. Extenders are not called here:
their answers are those of the state (`State.extender_answers`), and a decision that lacks some says which (`asks`).

Only what changes is an event. A pod that was tried before with the same result gets none.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import assert_never

import msgspec
from msgspec.structs import replace

from headgate.core.kubernetes.merge_patch import is_applied, merge_patched, removals
from headgate.core.kubernetes.pod_manifests import SCHEDULER_ERROR, shown_node
from headgate.core.placement.arrays import Rows
from headgate.core.placement.attempt import PlacementAttempt, attempt
from headgate.core.placement.configuration.profiles import Profiles, Registry, read_profiles
from headgate.core.placement.extenders.calls import NO_ANSWERS
from headgate.core.placement.extenders.requests import ExtenderAsk
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.plugin import PostFiltered, PreBound
from headgate.core.placement.framework.runtime import Framework
from headgate.core.placement.framework.status import Code, PluginStatus
from headgate.core.placement.nodes import NodeInfo
from headgate.core.placement.objects.kinds import OTHERS, PODS
from headgate.core.placement.plugins.gang_scheduling import NAME as GANG_SCHEDULING
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.core.placement.plugins.volume_binding import NAME as VOLUME_BINDING
from headgate.core.placement.plugins.volume_binding import VolumeBindingArgs
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.preemption_budgets import UNPROTECTED, Budgets
from headgate.core.placement.refused import (
    UNBOUND_VOLUMES,
    PodRefused,
    outwaited,
    patches,
    preempted,
    refused_by,
    refused_of,
)
from headgate.core.placement.scan import NodeOrder
from headgate.core.placement.view import PlacementChange, PlacementView
from headgate.core.state.tables import PlacementRecord, PlacementVerdict, State, write_key
from headgate.events import decisions
from headgate.events.decisions import ObjectPatch, PlacementDecision, Victim
from headgate.events.extenders import ExtenderAnswer
from headgate.events.ids import PodKey, Uid, UnixMs


class PodDecision(msgspec.Struct, frozen=True):
    """
    What one attempt amounts to.

    `events` are to be appended, in order. `is_placed` whether the pod got a node; otherwise `rejectors` are the plugins
    that rejected it and `pending` those of them that wait for something of their own; neither of them: an error.
    `next_start` is where the next scan starts. `changes` are what it has changed in the view. With `asks` nothing is
    decided: the pod is to be decided again, with the same start, when their answers are in the state.
    """

    events: tuple[PlacementDecision, ...]
    is_placed: bool
    rejectors: tuple[str, ...]
    pending: tuple[str, ...]
    next_start: int
    changes: tuple[PlacementChange, ...]
    asks: tuple[ExtenderAsk, ...] = ()


class ChosenNode(msgspec.Struct, frozen=True):
    """A node for a pod, as it is to be recorded, and what the plugins at Permit say: Success or Wait."""

    event: decisions.PodPlaced
    permit: PluginStatus


class PlacementDecider:
    """Decides pods on a state. Raises ConfigurationError when its KubeSchedulerConfiguration cannot be used."""

    def __init__(self, state: State, registry: Registry = REGISTRY) -> None:
        self.profiles: Profiles = read_profiles(state.scheduler_configuration, registry)
        self.view = PlacementView(state)
        self.frameworks = {
            name: Framework(profile, self.view.cluster, extenders=self.profiles.extenders)
            for name, profile in self.profiles.by_name.items()
        }
        self._answered: set[PodKey] = set()
        """Pods for which what is supposed was decided by answers of extenders: the next attempt asks anew."""

    def framework_of(self, pod: PodInfo) -> Framework | None:
        """The runtime of the profile that a pod names; None for pods of other schedulers."""
        return self.frameworks.get(pod.spec.scheduler_name)

    def pod_to_place(self, key: str) -> PodInfo | None:
        """A pod that may be tried: it exists, names a profile, has no node and is not being deleted."""
        pod = self.view.cluster.pods.get(key)
        if pod is None or pod.node_name or pod.is_terminating or self.framework_of(pod) is None:
            return None
        return pod

    def attempted(self, pod: PodInfo, scan_start: int, within: Rows | None = None) -> PlacementAttempt:
        """An attempt to place a pod, of which nothing is supposed; with `within` on some nodes only."""
        framework = self.frameworks[pod.spec.scheduler_name]
        scan = self.view.cluster.index(NodeOrder).scan(scan_start, self.profiles.percentage_of(framework.profile))
        if within is not None:
            scan = replace(scan, order=within, is_part=True)
        return attempt(framework, pod, scan, self._answers_of(PodKey(pod.key)))

    def _answers_of(self, key: PodKey) -> Mapping[str, ExtenderAnswer]:
        """What extenders have answered for the next attempt of a pod."""
        return NO_ANSWERS if key in self._answered else self.view.state.extender_answers.get(key, NO_ANSWERS)

    def decide(self, pod: PodInfo, scan_start: int) -> PodDecision:
        """Try to place a pod (`pod_to_place`) and suppose the result."""
        framework = self.frameworks[pod.spec.scheduler_name]
        made = self.attempted(pod, scan_start)
        if made.asks:
            return PodDecision((), False, (), (), scan_start, (), made.asks)
        next_start, scanned = scan_end(made, scan_start, len(self.view.cluster.columns.rows))
        if made.node:
            node = self.view.cluster.node(made.node)
            assert node is not None, f"{made.node} is gone"
            chosen = self.choose(framework, made.cycle, node, scan_start, scanned)
            if isinstance(chosen, ChosenNode):
                changes = self.suppose_all((chosen.event,))
                return PodDecision((chosen.event,), True, (), (), next_start, tuple(changes))
            refused, nominations = chosen, self.nominations(pod, "", None, scan_start)
        else:
            refused = refused_of(made)
            nominations = self.nominations(pod, made.nominated, made.post_filtered, scan_start)
        events: tuple[PlacementDecision, ...] = (*self.verdict(pod, refused, scan_start, scanned), *nominations)
        changes = self.suppose_all(events)
        return PodDecision(events, False, refused.rejectors, refused.pending, next_start, tuple(changes))

    def refuse_unreadable(self, key: PodKey) -> tuple[decisions.PodUnschedulable, ...]:
        """The verdict on a pod that is to be placed and cannot be read; () if the log has it."""
        problem = self.view.unreadable.get((PODS.plural, key))
        manifest = self.view.manifest_of(PODS, key)
        if problem is None or manifest is None or shown_node(manifest):
            return ()
        metadata, scheduler = manifest["metadata"], manifest.get("spec", {}).get("schedulerName", "")
        if metadata.get("deletionTimestamp") is not None or scheduler not in self.frameworks:
            return ()
        message = f"pod {key}: {problem}"
        uid = Uid(metadata.get("uid", ""))
        record = self.view.record_of_pod(key, uid)
        if record is not None and record.verdict is not None and record.verdict.message == message:
            return ()
        return (decisions.PodUnschedulable(pod=key, uid=uid, reason=SCHEDULER_ERROR, message=message),)

    # --- pods that got a node --------------------------------------------------------------------------------------

    def choose(
        self,
        framework: Framework,
        cycle: PlacementCycle,
        node: NodeInfo,
        scan_start: int = 0,
        scanned: int = 0,
        *,
        in_group: bool = False,
    ) -> ChosenNode | PodRefused:
        """
        Reserve, Permit, and what is to be written before the pod is bound.

        `in_group`: the pods of its group are decided together, so it need not be held back for them.
        """
        pod, cluster = cycle.pod, self.view.cluster
        reserved = framework.binding.reserve(cycle, node)
        if not reserved.status.is_success:
            return refused_by(reserved.status)
        permission = framework.binding.permit(cycle, node)
        waits_ms = [ms for name, ms in permission.waits_ms_max.items() if not (in_group and name == GANG_SCHEDULING)]
        placed = decisions.PodPlaced(
            pod=PodKey(pod.key), uid=Uid(pod.uid), node=node.name, scan_start=scan_start, scanned=scanned
        )
        if waits_ms:
            return ChosenNode(replace(placed, waits_ms=max(1, min(waits_ms))), permission.status)
        if permission.status.code not in (Code.SUCCESS, Code.WAIT):
            return refused_by(permission.status)
        before = [(each, cluster.objects(each.kind).get(each.key)) for each in reserved.assumed]
        for assumed, _ in before:
            cluster.put(assumed.kind, assumed.key, assumed.object)
        said = framework.binding.pre_bind(cycle, node)
        for assumed, found in before:
            cluster.put(assumed.kind, assumed.key, found)
        if said.status.code not in (Code.SUCCESS, Code.WAIT):
            return refused_by(said.status)
        return ChosenNode(replace(placed, writes=patches(said.writes)), permission.status)

    # --- pods that did not -----------------------------------------------------------------------------------------

    def verdict(
        self, pod: PodInfo, refused: PodRefused, scan_start: int, scanned: int
    ) -> tuple[decisions.PodUnschedulable, ...]:
        """The verdict, unless the log has it; if there are answers of extenders, it ends what they are for."""
        record = self.view.record_of_pod(pod.key, pod.uid)
        known = record.verdict if record is not None else None
        is_news = bool(self._answers_of(PodKey(pod.key))) or not self._is_asked_for(pod, refused.writes)
        said = refused.reason, refused.message, refused.refusals
        if not is_news and known is not None and (known.reason, known.message, known.refusals) == said:
            return ()
        return (
            decisions.PodUnschedulable(
                pod=PodKey(pod.key),
                uid=Uid(pod.uid),
                reason=refused.reason,
                message=refused.message,
                refusals=refused.refusals,
                scan_start=scan_start,
                writes=refused.writes,
                scanned=scanned,
            ),
        )

    def _is_asked_for(self, pod: PodInfo, writes: Iterable[ObjectPatch]) -> bool:
        """Whether the log has all writes that are to help a pod, and none of them is done or refused."""
        return all(
            (asked := self.view.state.post_filter_writes.get(write_key(write.kind, write.name))) is not None
            and (asked.pod, asked.uid, asked.write) == (pod.key, pod.uid, write)
            for write in writes
        )

    def nominations(
        self, pod: PodInfo, nominated: str | None, helped: PostFiltered | None, scan_start: int
    ) -> tuple[PlacementDecision, ...]:
        """The nomination, unless the log has it, and what others lose by it: their nominations, or nodes to come."""
        cluster = self.view.cluster
        doomed = [cluster.pods[key] for key in helped.victims] if helped is not None else []
        victims = self._victims(doomed)
        events: list[PlacementDecision] = []
        node = nominated if nominated is not None else pod.nominated_node_name
        if node != pod.nominated_node_name or victims:
            events.append(
                decisions.PodNominated(
                    pod=PodKey(pod.key), uid=Uid(pod.uid), node=node, victims=victims, scan_start=scan_start
                )
            )
        for key in sorted(helped.unnominated) if helped is not None else ():
            other = cluster.pods[key]
            events.append(decisions.PodNominated(pod=PodKey(key), uid=Uid(other.uid)))
        for other in doomed:
            record = self._held_back(other)
            if record is not None:
                events.append(_withdrawn(other, record, preempted(record)))
        return tuple(events)

    def _held_back(self, pod: PodInfo) -> PlacementRecord | None:
        """The record of a pod that is placed and waits for something before it is bound: it need not be deleted."""
        record = self.view.record_of_pod(pod.key, pod.uid)
        return record if record is not None and record.is_waiting else None

    def _victims(self, pods: Sequence[PodInfo]) -> tuple[Victim, ...]:
        """Of pods that have to go those to be deleted: not those that are terminating, or only have to lose a node."""
        budgets = self.view.cluster.index(Budgets)
        violating = budgets.violating(pods)
        return tuple(
            Victim(
                pod=PodKey(pod.key),
                uid=Uid(pod.uid),
                budgeted=budgets.group_of(pod.shape) != UNPROTECTED and not is_violating,
            )
            for pod, is_violating in zip(pods, violating, strict=True)
            if not pod.is_terminating and self._held_back(pod) is None
        )

    # --- pods that are placed and not bound yet ------------------------------------------------------------------

    def is_waiting(self, key: PodKey) -> bool:
        """Whether a pod is placed and something has to happen before it is bound (`follow_up`)."""
        record = self.view.record_of(key)
        return record is not None and record.is_waiting

    def deadline_ms(self, key: PodKey) -> UnixMs:
        """Until when such a pod may wait."""
        record, pod = self.view.record_of(key), self.view.base_of(key)
        assert record is not None, f"{key} is not placed"
        if record.waits_ms:
            return UnixMs(record.placed_at_ms + record.waits_ms)
        framework = self.framework_of(pod) if pod is not None else None
        arguments = framework.profile.arguments.get(VOLUME_BINDING) if framework is not None else None
        if not isinstance(arguments, VolumeBindingArgs):
            arguments = VolumeBindingArgs()
        return UnixMs(record.placed_at_ms + 1000 * arguments.bind_timeout_seconds)

    def follow_up(self, key: PodKey, now_ms: UnixMs) -> PlacementDecision | None:
        """What has become of a pod that is waiting; None while it has to wait on."""
        record, pod = self.view.record_of(key), self.view.base_of(key)
        if record is None or pod is None:
            return None
        return self._followed(pod, record, is_late=now_ms >= self.deadline_ms(key))

    def suppose(self, event: PlacementDecision) -> list[PlacementChange]:
        """The view as if an event were folded."""
        return self.suppose_all((event,))

    def forget(self) -> list[PlacementChange]:
        """Drop what is supposed: the log does not have it."""
        self._answered.clear()
        return self.view.forget()

    def _followed(self, pod: PodInfo, record: PlacementRecord, *, is_late: bool) -> PlacementDecision | None:
        framework, node = self.framework_of(pod), self.view.cluster.node(record.node)
        if framework is None:
            missing = f"no profile of the KubeSchedulerConfiguration is named {pod.spec.scheduler_name}"
            return _withdrawn(pod, record, PodRefused(SCHEDULER_ERROR, missing))
        if node is None:
            return _withdrawn(pod, record, PodRefused(SCHEDULER_ERROR, f'node "{record.node}" not found'))
        cycle = framework.cycle(pod)
        framework.pre_filter(cycle)
        if record.waits_ms:
            chosen = self.choose(framework, cycle, node)
            if isinstance(chosen, PodRefused):
                return _withdrawn(pod, record, chosen)
            if not chosen.event.waits_ms or not is_late:
                return None if chosen.event.waits_ms else chosen.event
            why = outwaited(record, framework.binding.permit(cycle, node).waits_ms_max)
            # Those that would have waited least have let the pod go; the others may wait on.
            return _withdrawn(pod, record, why) if why is not None else chosen.event
        is_written = all(self._is_written(write) for write in record.writes)
        said = framework.binding.pre_bind(cycle, node) if is_written else PreBound(PluginStatus(Code.WAIT))
        if said.status.code == Code.WAIT:
            return _withdrawn(pod, record, UNBOUND_VOLUMES) if is_late else None
        if not said.status.is_success:
            return _withdrawn(pod, record, refused_by(said.status))
        return decisions.PodPrepared(pod=PodKey(pod.key), uid=Uid(pod.uid), node=record.node)

    def _is_written(self, write: ObjectPatch) -> bool:
        """Whether an object shows what is to be written, as far as placement reads it."""
        kind = OTHERS.get(write.kind)
        manifest = self.view.manifest_of(kind, write.name) if kind is not None else None
        if kind is None or manifest is None:
            return False
        # What placement does not read of the patch is not in the log.
        wanted = kind.reduced(merge_patched(manifest, write.patch))
        return is_applied(kind.reduced(manifest), wanted) and is_applied(manifest, removals(write.patch))

    # --- what is supposed ------------------------------------------------------------------------------------------

    def _record(self, key: PodKey, uid: Uid) -> PlacementRecord:
        return self.view.record_of_pod(key, uid) or PlacementRecord(uid=uid)

    def suppose_all(self, events: Iterable[PlacementDecision]) -> list[PlacementChange]:
        """The view as if these events were folded."""
        changes: list[PlacementChange] = []
        for event in events:
            record = self._record(event.pod, event.uid)
            self._answered.add(event.pod)
            match event:
                case decisions.PodPlaced():
                    placed = replace(record, node=event.node, writes=event.writes, waits_ms=event.waits_ms)
                    changes += self.view.suppose(event.pod, replace(placed, nominated="", verdict=None))
                case decisions.PodUnschedulable():
                    verdict = PlacementVerdict(reason=event.reason, message=event.message, refusals=event.refusals)
                    changes += self.view.suppose(event.pod, replace(record, verdict=verdict))
                case decisions.PodNominated():
                    changes += self.view.suppose(event.pod, replace(record, nominated=event.node))
                    for victim in event.victims:
                        doomed = replace(self._record(victim.pod, victim.uid), preempted_by=event.pod)
                        changes += self.view.suppose(victim.pod, doomed)
                case decisions.PodWithdrawn():
                    changes += self.view.suppose(event.pod, replace(record, node="", writes=(), waits_ms=0))
                case decisions.PodPrepared():
                    changes += self.view.suppose(event.pod, replace(record, prepared=True))
                case _:
                    assert_never(event)
        return changes


def scan_end(made: PlacementAttempt, start: int, nodes: int) -> tuple[int, int]:
    """Where the scan after an attempt starts, and how many of the nodes it has looked at, as recorded: 0 for all."""
    nodes = max(1, nodes)
    return (start + made.looked) % nodes, made.looked if made.looked < nodes else 0


def _withdrawn(pod: PodInfo, record: PlacementRecord, why: PodRefused) -> decisions.PodWithdrawn:
    return decisions.PodWithdrawn(
        pod=PodKey(pod.key), uid=Uid(pod.uid), node=record.node, reason=why.reason, message=why.message
    )
