"""A log that is founded already, for tests of processes that run without the informer bridge."""

from tests.support.logs import TestLog

from headgate.adapters.jetstream import connect, open_log
from headgate.adapters.log import Appended
from headgate.events.base import Producer
from headgate.events.commit import encode_commit
from headgate.events.effects import LeaderElected
from headgate.events.identity import CellFounded


async def found(url: str, cell: str = "main", cluster: str = "a cluster") -> CellFounded:
    """Found a cell on a broker in the bridge's name, as the first commit of its log."""
    async with connect(url, name="founder") as connection:
        log = await open_log(connection, cell)
        founding = CellFounded(cell=cell, cluster=cluster, stream=log.identity, log_id=f"log of {cell}")
        logged = TestLog(cell).encode(Producer.INFORMER_BRIDGE, LeaderElected(holder="founder"), founding)
        payload = encode_commit(logged.commit)
        outcome = await log.append(Producer.INFORMER_BRIDGE.value, payload, expected_last=0, commit_id=logged.commit.id)
        assert isinstance(outcome, Appended)
    return founding
