"""An own broker, with credentials: every command reaches it alike, and the credentials stay secret."""

import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import IO

import anyio
import pytest
from tests.support.brokers import Broker
from tests.support.waiting import until

from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.jetstream.permissions import READER
from headgate.adapters.jetstream.users import seed_file
from headgate.adapters.private import write_private
from headgate.cli import cell

pytestmark = pytest.mark.anyio

WORD = "hush-and-never-tell"
USERS = f"authorization {{ users: [ {{ user: ops, password: {WORD} }} ] }}"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[EmbeddedServer]:
    async with EmbeddedServer(tmp_path / "nats", extra_config=USERS) as server:
        yield server


async def command(*args: object, **env: str) -> "subprocess.CompletedProcess[bytes]":
    """`headgate ARGS...` as a process, with variables."""
    every = {**os.environ, **env}
    return await anyio.run_process([sys.executable, "-m", "headgate.cli.main", *map(str, args)], check=False, env=every)


def ways(broker: EmbeddedServer, tmp_path: Path) -> dict[str, tuple[list[str], dict[str, str]]]:
    """Each way to give the same credentials: arguments and variables."""
    write_private(tmp_path / "word", WORD + "\n")
    settings = tmp_path / "settings.yaml"
    write_private(settings, f"nats: {{url: '{broker.url}', user: ops, password_file: '{tmp_path / 'word'}'}}\n")
    with_user = broker.url.replace("nats://", f"nats://ops:{WORD}@")
    return {
        "flags": (["--nats", broker.url, "--nats-user", "ops", "--nats-password-file", str(tmp_path / "word")], {}),
        "environment": ([], {"NATS_URL": broker.url, "HEADGATE_NATS_USER": "ops", "HEADGATE_NATS_PASSWORD": WORD}),
        "settings file": ([], {"HEADGATE_CONFIG": str(settings)}),
        "url": ([], {"HEADGATE_NATS_URL": with_user}),
    }


@pytest.mark.parametrize("way", ["flags", "environment", "settings file", "url"])
async def test_reading_commands_take_credentials_in_every_way(broker: EmbeddedServer, tmp_path: Path, way: str) -> None:
    """They get as far as the broker's own answer, which names the cell that is not there, and show no secret."""
    args, env = ways(broker, tmp_path)[way]
    done = await command("state", *args, **env)
    said = (done.stdout + done.stderr).decode()
    assert "has no cell 'main'" in said
    assert WORD not in said


async def test_a_refusal_names_the_broker_and_no_secret(broker: EmbeddedServer) -> None:
    """Wrong credentials in a URL are one line without them."""
    done = await command("queue", "status", "--nats", broker.url.replace("nats://", f"nats://ops:{WORD}x@"))
    said = (done.stdout + done.stderr).decode()
    assert f"{broker.url} refuses this client" in said
    assert WORD not in said
    assert len(said.splitlines()) == 1


async def test_a_reader_reads_with_its_own_key_and_is_told_what_it_may_not(tmp_path: Path) -> None:
    """`headgate nats permissions` gives a reader what reading takes; setting up is the admin's."""
    async with Broker(tmp_path) as broker:
        await broker.admit("main")
        key = str(seed_file(broker.users("main"), READER))
        done = await command("state", "--nats", broker.url, "--nats-nkey", key)
        assert done.returncode == 0, done.stderr
        assert broker.violations() == []
        done = await command("nats", "setup", "--nats", broker.url, "--nats-nkey", key)
        said = done.stderr.decode()
        assert done.returncode != 0
        assert len(said.splitlines()) == 1
        assert "may not" in said
        assert "`headgate nats permissions` prints" in said


def started(data: Path, url: str, said: IO[bytes]) -> "subprocess.Popen[bytes]":
    """`headgate up` on a broker that the environment names."""
    arguments = [sys.executable, "-m", "headgate.cli.main", "up", "--data", str(data)]
    return subprocess.Popen(arguments, stdout=said, stderr=said, env={**os.environ, "NATS_URL": url})


def command_lines(found: cell.Found) -> list[str]:
    """What everybody on this machine can read of the children."""
    return [Path(f"/proc/{child.pid}/cmdline").read_text() for child in found.info.processes.values()]


async def test_up_on_a_broker_of_ones_own_keeps_its_credentials_to_itself(
    broker: EmbeddedServer, tmp_path: Path, elsewhere: Callable
) -> None:
    """
    Not printed, not logged, not on a command line of a child, and in files that only their owner may read.

    Other commands find the cell and the way to it in its directory.
    """
    data = tmp_path / "cell"
    url = broker.url.replace("nats://", f"nats://ops:{WORD}@")
    with (tmp_path / "said").open("wb") as said:
        up = started(data, url, said)
        try:
            await until(lambda: b" is up: " in (tmp_path / "said").read_bytes(), (tmp_path / "said").read_text)
            found = cell.read(data)
            assert found is not None
            assert not any(WORD in line for line in command_lines(found))
            done = await command("state", "--data", data)
            assert done.returncode == 0, done.stderr
        finally:
            up.terminate()
            await anyio.to_thread.run_sync(up.wait)
    assert WORD not in (tmp_path / "said").read_text()
    holding = [path for path in data.rglob("*") if path.is_file() and WORD.encode() in path.read_bytes()]
    assert {path.name for path in holding} <= {"cell.json", "env"}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in holding)


async def test_what_up_keeps_is_its_owners_alone(tmp_path: Path) -> None:
    """Keys of the users it makes, the broker's configuration, the address: 0600, in a directory of 0700."""
    from headgate.cli.supervisor import Supervisor, UpOptions

    async with Supervisor(UpOptions(data=tmp_path / "cell", processes=())):
        secret = [
            *(tmp_path / "cell" / "nats-users").glob("*.nk"),
            tmp_path / "cell" / "cell.json",
            tmp_path / "cell" / "env",
            tmp_path / "cell" / "nats" / "nats-server.conf",
        ]
        assert len(secret) == 12
        assert {stat.S_IMODE(path.stat().st_mode) for path in secret} == {0o600}
        assert stat.S_IMODE((tmp_path / "cell").stat().st_mode) == 0o700
