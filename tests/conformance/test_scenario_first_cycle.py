"""The first cycle of recorded scenarios: who is a head, and how each is nominated."""

import gzip
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.support import conformance

from headgate.core.cycle import decide_cycle
from headgate.core.state import State
from headgate.events.decisions import CycleDecided, QuotaReserved, WorkloadSkipped

SCENARIOS = conformance.ROOT / "scenarios"

pytestmark = pytest.mark.skipif(not SCENARIOS.is_dir(), reason="the recordings of Kueue are not next to the repository")


def _scenarios() -> Iterator[Any]:
    """Those without fair sharing and topologies that ran a cycle."""
    for kind in "abcfg":
        path = SCENARIOS / f"{kind}.jsonl.gz"
        if not path.exists():
            continue
        with gzip.open(path) as lines:
            for line in lines:
                record = msgspec.json.decode(line)
                if "fairSharing" not in record["scenario"]["config"] and record["outcome"]["trace"]:
                    yield pytest.param(record, id=record["scenario"]["name"])


def _decided(state: State) -> tuple[list[str], dict[str, QuotaReserved], dict[str, WorkloadSkipped]]:
    events = decide_cycle(state, reserved=())
    heads = [head.workload for event in events if isinstance(event, CycleDecided) for head in event.heads]
    reserved = {event.workload: event for event in events if isinstance(event, QuotaReserved)}
    skipped = {event.workload: event for event in events if isinstance(event, WorkloadSkipped)}
    return heads, reserved, skipped


@pytest.mark.parametrize("record", list(_scenarios()))
def test_heads_are_nominated_as_kueue_nominated_them(record: dict[str, Any]) -> None:
    """Every head that Kueue found to fit, or to fit never, is found so here; neither depends on preemption."""
    log = conformance.observed(record["scenario"])
    conformance.offer_heads(log)
    heads, reserved, skipped = _decided(log.state)
    evaluated = {each["workload"]: each for each in record["outcome"]["trace"][0]["evaluated"]}
    rejected = {key for key in heads if key in skipped and skipped[key].reason == "Misconfigured"}
    assert set(heads) - rejected == set(evaluated)
    alone = not any(each["targets"] for each in evaluated.values() if "targets" in each)
    for key, each in evaluated.items():
        match each["mode"], each["status"]:
            case "NoFit", _:
                assert (skipped[key].reason, skipped[key].message) == (each["quotaReservedReason"], each["message"])
                assert skipped[key].requeue_reason == each["requeueReason"]
            case "Fit", "assumed" if alone:
                assert _flavors(reserved[key]) == each["flavors"]
            case "Fit", "skipped" if alone:
                assert skipped[key].message == each["message"]
            case _:
                pass


def _flavors(reserved: QuotaReserved) -> dict[str, dict[str, str]]:
    return {each.name: each.flavors for each in reserved.admission.pod_set_assignments}
