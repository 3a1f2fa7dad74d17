"""A read side over a log in memory, and a client of it, for tests of its answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer
from tests.support.logs import TestLog

from headgate.adapters.jetstream.health import DependencyHealth
from headgate.processes.entry import ReadData
from headgate.processes.runtime.process_status import Phase, Status
from headgate.processes.runtime.settings import Settings
from headgate.web.routes import add_routes


class ReadSide:
    """The routes of a leading snapshotter. `serving` opens them."""

    def __init__(self) -> None:
        self.log = TestLog()
        status = Status(process="snapshotter", cell="main", holder="h", health=DependencyHealth())
        status.phase = Phase.LEADING
        self.view = ReadData(Settings(), status)
        self.view.host = SimpleNamespace(state=self.log.state, is_whole=True)  # type: ignore[assignment]
        self.url = ""
        self.session: ClientSession

    async def get(self, path: str, status: int = 200) -> Any:
        async with self.session.get(f"{self.url}{path}") as answer:
            body = await answer.json()
            assert answer.status == status, body
            return body

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer, for as long as the block runs."""
        app = web.Application()
        add_routes(app, self.view)
        async with TestServer(app) as server, ClientSession() as session:
            self.url, self.session = str(server.make_url("")).rstrip("/"), session
            yield
