"""A machine over a log in memory, run by the driver of production; the test decides what is stored when."""

from collections.abc import Callable

from tests.support.logs import TestLog

from headgate.core.engine.driver import Driver
from headgate.core.engine.outputs import CommitStored, MachineMade, Output, Send
from headgate.core.machine.contract import Machine, Stimulus
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit
from headgate.events.ids import Epoch


class Driven:
    """The driver of a machine that leads, in a log without another instance of its producer."""

    def __init__(self, log: TestLog, producer: Producer, make: Callable[[State], Machine]) -> None:
        self._log = log
        self.driver = Driver(producer, log.state, make)
        self.driver.resume_term(Epoch(1))
        self.driver.advance(log.now_ms)
        self.driver.take()

    @property
    def machine(self) -> Machine:
        """The machine itself."""
        assert self.driver.machine is not None
        return self.driver.machine

    def folded(self, logged: LoggedCommit) -> None:
        """A commit was appended to the log and folded; that must not cause any request."""
        self.driver.folded(logged)
        assert self.driver.take() == []

    def hear(self, *stimuli: Stimulus) -> None:
        """Something happened outside, and the machine gets it at once."""
        for stimulus in stimuli:
            self.driver.receive(stimulus)
        self.driver.deliver()

    def settle(self) -> list[Output]:
        """One turn: what is requested now."""
        self.driver.advance(self._log.now_ms)
        self.driver.settle(self._log.now_ms)
        return [output for output in self.driver.take() if not isinstance(output, CommitStored | MachineMade)]

    def store(self, send: Send) -> LoggedCommit:
        """The log takes a commit, also of a machine that was killed since it sent it."""
        logged = self._log.store(send.commit.producer, send.payload)
        if self.driver.is_appending:
            self.driver.appended(logged.seq)
        return logged
