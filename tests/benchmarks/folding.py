"""How fast commits are decoded and folded, by the number of events in each."""

import msgspec
from tests.benchmarks.lives import CELL, Payload, Writer, history
from tests.benchmarks.measure import Report, Row, median_s, profiled

from headgate.core import fold
from headgate.core.state.tables import State
from headgate.events import facts
from headgate.events.base import EventBase, Producer
from headgate.events.commit import Commit, decode_commit, digest
from headgate.events.ids import PodKey, Uid
from headgate.events.objects import Container, Node, Pod, PodSpec, Resources

EVENTS = 50_000
TARGET_PER_S = 100_000


def small_fact(number: int) -> EventBase:
    """Pods come and go, nodes change: most of the facts of a busy cluster."""
    match number % 5:
        case 0:
            allocatable: dict[str, str | int | float] = {"cpu": "64", "memory": f"{256 - number % 3}Gi", "pods": "110"}
            return facts.NodeObserved(
                name=f"n{number % 1000}", node=Node(name=f"n{number % 1000}", allocatable=allocatable)
            )
        case 1 | 2:
            container = Container(name="c", resources=Resources(requests={"cpu": "500m", "memory": "1Gi"}))
            spec = PodSpec(containers=(container,), node_name=f"n{number % 1000}")
            pod = Pod(uid=f"uid-{number}", created_ms=1_700_000_000_000, spec=spec, phase="Running")  # type: ignore[arg-type]
            return facts.PodObserved(pod=PodKey(f"team-{number % 10}/p{number}"), spec=pod)
        case _:
            earlier = number - 2
            return facts.PodDeleted(pod=PodKey(f"team-{earlier % 10}/p{earlier}"), uid=Uid(f"uid-{earlier}"))


def fold_all(payloads: list[Payload]) -> State:
    """Decode and fold, as every process does."""
    state = fold.new_state(CELL)
    for seq, (subject, payload) in enumerate(payloads, 1):
        fold.apply(state, decode_commit(seq, subject, payload))
    return state


def floor(payloads: list[Payload]) -> None:
    """What no fold can be faster than: decode the JSON into the event types and hash the bytes."""
    decoder = msgspec.json.Decoder(Commit)
    for _, payload in payloads:
        decoder.decode(payload)
        digest(payload)


def run(*, profile: bool = False) -> Report:
    """Small facts at 1, 10 and 100 events a commit, and the mix of whole lives."""
    report = Report(name="fold")
    cases: list[tuple[str, list[Payload], int, bool]] = []
    for size in (1, 10, 100):
        writer = Writer()
        payloads = [
            writer.commit(Producer.INFORMER_BRIDGE, *(small_fact(number + n) for n in range(size)))
            for number in range(0, EVENTS, size)
        ]
        cases.append((f"fold, small facts, {size} a commit", payloads, EVENTS, True))
    writer = Writer()
    lives = list(history(EVENTS, 8, writer))
    cases.append((f"fold, whole lives of jobs, {writer.events / len(lives):.0f} a commit", lives, writer.events, False))
    for what, payloads, events, has_target in cases:
        took_s = median_s(lambda payloads=payloads: fold_all(payloads))  # type: ignore[misc]
        floor_s = median_s(lambda payloads=payloads: floor(payloads))  # type: ignore[misc]
        rate = events / took_s
        event_bytes = sum(len(payload) for _, payload in payloads) / events
        report.rows.append(
            Row(
                what=what,
                figure=f"{rate:,.0f} events/s",
                target=f">= {TARGET_PER_S:,}" if has_target else "",
                met=rate >= TARGET_PER_S if has_target else None,
                compared=f"{took_s / floor_s:.2f} x decoding and hashing alone; {event_bytes:.0f} bytes/event",
            )
        )
    report.notes.append(
        "beside decoding and hashing: the envelope's checks, the chain hash, the events' effects on tables and indexes"
    )
    if profile:
        report.profile = profiled(lambda: fold_all(cases[1][1])) + "\n" + profiled(lambda: fold_all(cases[3][1]))
    return report
