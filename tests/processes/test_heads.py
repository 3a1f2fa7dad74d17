"""Leases carry the head of the log that their holder had: a log lost or exchanged since is detected at once."""

from typing import Any

import pytest
from tests.support.history import History
from tests.support.waiting import until

from headgate.adapters.lease import Lease, LeaseRecord
from headgate.adapters.log import LogDamaged
from headgate.core import fold
from headgate.core.log.attestation import WINDOW
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import decode_entry
from headgate.events.facts import NamespaceObserved
from headgate.processes.runtime.cell_identity import hold_against_leases
from headgate.testing.memory_log import AsyncMemoryLog, MemoryLeases, MemoryLog, MemoryRegister

pytestmark = pytest.mark.anyio
BRIDGE, BINDER = Producer.INFORMER_BRIDGE, Producer.BINDER


def history(count: int) -> History:
    written = History()
    for number in range(count):
        written.put(BRIDGE, NamespaceObserved(name=f"n{number}"))
    return written


def folded(written: History, up_to: int) -> tuple[State, AsyncMemoryLog]:
    """The state of the log's beginning, and a broker that has just that."""
    state, memory = fold.new_state("main"), MemoryLog()
    for entry in written.entries[:up_to]:
        fold.apply(state, decode_entry(entry.seq, entry.subject, entry.payload, entry.time_ms))
        memory.publish(entry.subject, entry.payload)
    return state, AsyncMemoryLog(memory)


def lease_of(state: State, **changes: Any) -> MemoryLeases:
    """Leases of which the binder's was renewed last at this state."""
    leases = MemoryLeases()
    head: dict[str, Any] = {"position": state.position, "log_hash": state.log_hash} | changes
    leases.register(BINDER.value).write_now(LeaseRecord(holder="b", epoch=1, term_ms=1, **head), expected=0)
    return leases


async def test_a_log_that_reaches_every_head_is_gone_on_with() -> None:
    """Also one that has grown since, and leases of earlier releases, without a head, and without a holder."""
    written = history(20)
    earlier, _ = folded(written, 8)
    state, log = folded(written, 20)
    for leases in (lease_of(earlier), lease_of(state), lease_of(state, position=0, log_hash=""), MemoryLeases()):
        await hold_against_leases(leases, state, log)


async def test_a_log_that_is_shorter_than_a_head_is_damage() -> None:
    """The message names the holder and its head, the end of the log, and the remedy."""
    written = history(20)
    state, log = folded(written, 15)
    with pytest.raises(
        LogDamaged, match=r"the log ends at 15, but the lease of the binder .* up to position 21"
    ) as told:
        await hold_against_leases(lease_of(written.state), state, log)
    assert "headgate restore" in str(told.value)


async def test_a_log_that_has_another_hash_at_a_head_is_damage() -> None:
    """It was changed, or it is another log of the same length."""
    state, log = folded(history(20), 20)
    with pytest.raises(LogDamaged, match=r"this one has .* there: it is another log, or was changed"):
        await hold_against_leases(lease_of(state, log_hash="0" * 32), state, log)


async def test_a_head_that_is_not_folded_yet_or_too_far_back_is_not_judged() -> None:
    """The state has the hashes of its newest positions; the audit has all of them."""
    written = history(WINDOW + 30)
    state, _ = folded(written, WINDOW + 30)
    _, log = folded(written, WINDOW + 30)
    early, _ = folded(written, 20)
    await hold_against_leases(lease_of(early, log_hash="0" * 32), state, log)
    await hold_against_leases(lease_of(state, log_hash="0" * 32), early, log)


async def test_each_renewal_carries_the_head_of_that_moment() -> None:
    """From the acquisition on."""
    heads = [(1, "a")]
    register = MemoryRegister()
    lease = Lease(register, "one", term_ms=300, head=lambda: heads[-1])
    async with lease.hold():
        first = register.read_now().record
        assert first is not None
        assert (first.position, first.log_hash) == (1, "a")
        heads.append((5, "b"))
        await until(lambda: register.read_now().record != first)
        renewed = register.read_now().record
        assert renewed is not None
        assert (renewed.position, renewed.log_hash) == (5, "b")
