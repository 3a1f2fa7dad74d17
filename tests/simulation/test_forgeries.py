"""Forged decisions among the commits of six machines that sign: none takes effect, and everything ends as without."""

import random

import msgspec
from tests.events.test_contract import example
from tests.simulation.scenarios import scenario
from tests.simulation.test_seeds import Run, faults_of, waiting

from headgate.core.audit.invariants import forgotten
from headgate.core.log.authority import author_of
from headgate.core.machine.commits import next_commit
from headgate.core.machine.contract import Append
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, encode_commit
from headgate.events.ids import Epoch, UnixMs
from headgate.events.registry import TAGS
from headgate.events.signing import Signer
from headgate.events.subjects import log_subject
from headgate.testing.world.world import FaultRates

SIGNERS = {producer: Signer([bytes([number]) * 32]) for number, producer in enumerate(Producer, 1)}
STRANGER = Signer([b"x" * 32])
FORGERIES = 40


class Attacked(Run):
    """A run in which a client with the broker's permission, and no key, publishes anything."""

    def __init__(self, faults: FaultRates, seed: int) -> None:
        self.draw = random.Random(f"forgeries-{seed}")
        self.forged = 0
        self.is_forging = False
        super().__init__(scenario(seed), faults, seed, signers=SIGNERS)

    def check(self, state: State, logged: LoggedCommit) -> None:
        """Behind some commits, a forgery: the next commit of a process, as far as it can be predicted."""
        super().check(state, logged)
        if self.forged < FORGERIES and state.identity is not None and self.draw.random() < 0.2:
            self.forge(state)

    def forge(self, state: State) -> None:
        world = self.world
        event_type = TAGS[self.draw.choice(sorted(TAGS))]
        required = {field.name: example(field.type) for field in msgspec.structs.fields(event_type) if field.required}
        producer = author_of(event_type) or self.draw.choice(list(Producer))
        record = state.producers.get(producer)
        epoch = record.epoch if record is not None else Epoch(1)
        append = Append(events=(event_type(**required),))  # type: ignore[arg-type]
        commit, _ = next_commit(state, producer, epoch, append, UnixMs(world.clock.now_ms))
        payload = encode_commit(commit)
        signed = self.draw.choice([payload, STRANGER.sign(payload), b"hello"])
        assert not world.publish(log_subject(world.cell, producer), signed)
        self.forged += 1


def test_forgeries_change_nothing(sampled_seed: int) -> None:
    """The same jobs finish as in a run without attack; every machine has refused the same entries."""
    attacked = Attacked(faults_of(sampled_seed), sampled_seed)
    attacked.play()
    plan, world = attacked.plan, attacked.world
    assert attacked.finished() - plan.deleted == plan.can_finish, waiting(attacked)
    assert forgotten(world.state) == []
    refused = world.state.refused
    assert refused is not None
    assert refused.count == attacked.forged > 0
    for instance in world.instances:
        assert instance.machine is not None, instance.name
        assert instance.state.refused == refused
        assert instance.state.log_hash == world.state.log_hash
