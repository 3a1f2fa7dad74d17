"""One NATS server for the tests that leave it alone; each test has a cell, and so streams, of its own."""

import itertools
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from headgate.adapters.jetstream import Connection, DependencyHealth, connect
from headgate.adapters.jetstream.embedded import EmbeddedServer

_cells = itertools.count(1)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def cell() -> str:
    """A cell that no other test uses: streams of one name must not be deleted and made again quickly."""
    return f"t{os.getpid()}-{next(_cells)}"


@pytest.fixture(scope="session")
async def shared_server(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedServer]:
    """A server that tests may not stop."""
    async with EmbeddedServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture
async def connection(shared_server: EmbeddedServer) -> AsyncIterator[Connection]:
    async with connect(shared_server.url, name="test") as connection:
        yield connection


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    """A server of the test's own, to be killed."""
    async with EmbeddedServer(tmp_path / "nats") as server:
        yield server


@pytest.fixture
def health() -> DependencyHealth:
    return DependencyHealth()
