"""
A broker as it is meant to be run: each process of every cell under a NATS user of its own, with no right too many.

`Broker` replaces the embedded server in tests of whole cells. `admit` adds the users of a cell, and makes its
streams as the cell's admin. A client without credentials may do everything: that is the test itself.
"""

import signal
from pathlib import Path
from typing import Any

import anyio

from headgate.adapters.jetstream import BrokerError, NatsOptions, PermissionDenied, connect
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.jetstream.errors import NotSent
from headgate.adapters.jetstream.permissions import ADMIN, configuration, users_of
from headgate.adapters.jetstream.users import make_streams, make_users, options_of, seed_file
from headgate.processes.runtime.settings import NatsSettings

_USERS = "# users\n"
_ONLOOKER = "{ user: test, password: test }"
_NOBODYS = "nobody.may"
_PATIENCE_S = 20.0


class Broker(EmbeddedServer):
    """An embedded server with users. `more` goes into its configuration."""

    def __init__(self, store_dir: Path | str, *, more: str = "", **options: Any) -> None:
        super().__init__(store_dir, **options)
        self._more = more
        self._cells: list[str] = []
        self._extra_config = self._users_block()

    async def admit(self, cell: str, *, with_streams: bool = True) -> None:
        """Add the users of a cell; when this returns, the server accepts them and the cell has its streams."""
        if cell in self._cells:
            return
        self._cells.append(cell)
        make_users(self.users(cell))
        self._extra_config = self._users_block()
        # The part before the users must not change: a reload may not set ports, not even to the same values.
        config = self.store_dir / "nats-server.conf"
        config.write_text(config.read_text().partition(_USERS)[0] + self._extra_config)
        self.send_signal(signal.SIGHUP)
        with anyio.fail_after(_PATIENCE_S):
            while not await self._knows(cell):  # noqa: ASYNC110
                await anyio.sleep(0.02)
        if with_streams:
            async with connect(self.url, name="admit", options=self.options(cell, ADMIN)) as admin:
                await make_streams(admin, cell)

    async def _knows(self, cell: str) -> bool:
        """Whether the server distinguishes the cell's users; until it does, they have the rights of the test."""
        try:
            async with connect(self.url, name="admit", options=self.options(cell, ADMIN)) as admin:
                await admin.requests.request(_NOBODYS, b"")
        except PermissionDenied:
            return True
        except (BrokerError, NotSent):
            pass
        return False

    def users(self, cell: str) -> Path:
        """Where the seeds of a cell's users are."""
        return self.store_dir / "users" / cell

    def options(self, cell: str, name: str) -> NatsOptions:
        """How a user connects."""
        return options_of(self.users(cell), cell, name)

    def settings(self, cell: str, name: str) -> NatsSettings:
        """The same as a process's settings."""
        return NatsSettings(url=self.url, nkey_seed_file=str(seed_file(self.users(cell), name)))

    def violations(self) -> list[str]:
        """What the server has refused so far, but for what `admit` tried on purpose."""
        return [line for line in self.log_lines(1_000_000) if "Violation" in line and _NOBODYS not in line]

    def _users_block(self) -> str:
        entries = [f"    {_ONLOOKER}"]
        for cell in self._cells:
            block = configuration(users_of(cell), make_users(self.users(cell)))
            entries.append(block.partition("users: [\n")[2].rpartition("\n  ]")[0])
        users = "\n".join(entries)
        return f"{_USERS}{self._more}\nauthorization {{ users: [\n{users}\n] }}\nno_auth_user: test\n"
