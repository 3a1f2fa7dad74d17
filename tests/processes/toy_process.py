"""
A process of its own for tests: a counter under the real entry's `Runner`.

    python toy_process.py NATS_URL CELL HOLDER GOAL [STOP_AT]

At its STOP_AT-th decision it stops itself with SIGSTOP, between deciding and appending: the worst moment there is.
"""

import os
import signal
import sys
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.support.toys import Counter

from headgate.adapters.telemetry import configure_logs
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.processes.entry import Exit, Runner, main_of
from headgate.processes.runtime.process import Process, only_appends
from headgate.processes.runtime.settings import LeaseSettings, NatsSettings, Settings


def main() -> int:
    url, cell, holder, goal, *stop_at = sys.argv[1:]
    stop_at_count = int(stop_at[0]) if stop_at else 0

    def before(count: int) -> None:
        if count == stop_at_count:
            sys.stderr.write("stopping myself\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGSTOP)

    def machine(state: State) -> Counter:
        return Counter(state, int(goal), before=before)

    settings = Settings(cell=cell, holder=holder, nats=NatsSettings(url=url), lease=LeaseSettings(term_ms=1_000))
    configure_logs(form="human", level="info", process="toy", cell=cell, holder=holder)
    process = Process(producer=Producer.INFORMER_BRIDGE, build=only_appends(machine))
    return anyio.run(main_of, Runner(process, settings), backend_options={"use_uvloop": True})


if __name__ == "__main__":
    code = main()
    assert code in tuple(Exit)
    sys.exit(code)
