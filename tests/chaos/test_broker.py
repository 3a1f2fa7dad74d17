"""A full stream, a broker that is gone or frozen: processes wait, report it, lose nothing, and then continue."""

import re
import signal
from pathlib import Path

import anyio
import msgspec
import pytest
from tests.chaos.harness import PROCESSES, Chaos, chaos

from headgate.adapters.jetstream import connect
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.jetstream.permissions import ADMIN
from headgate.adapters.jetstream.stream import stream_info, stream_name

pytestmark = [pytest.mark.chaos, pytest.mark.anyio, pytest.mark.timeout(300)]

ROOM_BYTES = 30_000
AWAY_S = 6.0


async def limit(run: Chaos, max_bytes: int | None) -> None:
    """Let the log's stream hold so many bytes more than it does, or (None) as many as it likes."""
    async with connect(run.cell.nats_url, name="chaos", options=run.cell.nats_options(ADMIN)) as connection:
        name = stream_name("main")
        info = await stream_info(connection, name)
        bound = -1 if max_bytes is None else info.state.bytes + max_bytes
        config = msgspec.structs.replace(info.config, max_bytes=bound)
        decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
        await connection.call(f"STREAM.UPDATE.{name}", msgspec.json.encode(config), decoder)


async def test_a_full_stream_is_waited_for(tmp_path: Path, chaos_seed: int) -> None:
    """When the stream takes no more, /readyz and the logs report it and nothing proceeds; with room, it continues."""
    async with chaos(tmp_path, chaos_seed) as run:
        await run.progress(10)
        await limit(run, ROOM_BYTES)
        run.say(f"the stream has room for {ROOM_BYTES} bytes")
        await full(run, timeout_s=60)
        position = run.driver.state.position
        run.say("the stream is full, and the processes say so")
        await anyio.sleep(3)
        assert run.driver.state.position - position < 20, "the stream is not full"
        logs = "".join(run.log_of(name) for name in PROCESSES)
        assert "maximum bytes" in logs
        assert "waiting" in logs
        await limit(run, None)
        run.say("the stream has room again")
        await run.progress(20)
        assert all(child.restarts == 0 for child in run.cell.children.values())
        await run.judge()


async def full(run: Chaos, timeout_s: float) -> None:
    """Wait until a process reports in /readyz that the stream is full."""
    with anyio.move_on_after(timeout_s):
        while True:
            for name in PROCESSES:
                answer = await run.readyz(name)
                for dependency in answer.get("dependencies", ()):
                    if not dependency["ok"] and "maximum bytes" in dependency.get("error", ""):
                        assert answer["ready"] is False
                        return
            await anyio.sleep(0.1)
    raise AssertionError(await run.story("no process says that the stream is full"))


async def all_miss_nats(run: Chaos, timeout_s: float) -> None:
    """Wait until every process reports in /readyz that the broker does not answer."""
    missing: set[str] = set()
    with anyio.move_on_after(timeout_s):
        while missing != set(PROCESSES):
            for name in PROCESSES:
                answer = await run.readyz(name)
                unwell = [each["name"] for each in answer.get("dependencies", ()) if not each["ok"]]
                if unwell and not answer["ready"]:
                    missing.add(name)
            await anyio.sleep(0.1)
        return
    raise AssertionError(await run.story(f"{set(PROCESSES) - missing} did not notice that the broker is gone"))


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_a_lost_broker_is_waited_for(how: str, tmp_path: Path, chaos_seed: int) -> None:
    """While the broker is away all six run on, not ready, and report the reason; when it is back they continue."""
    async with (
        EmbeddedServer(tmp_path / "nats") as server,
        chaos(tmp_path / "cell", chaos_seed, nats_url=server.url) as run,
    ):
        await run.progress(10)
        if how == "killed":
            await server.kill()
        else:
            server.send_signal(signal.SIGSTOP)
        run.say(f"the broker is {how}")
        await all_miss_nats(run, 40)
        run.say("all processes say so")
        for name in PROCESSES:
            logged = re.search(r"WRN .*waiting for (nats|stream)", run.log_of(name))
            assert logged, await run.story(f"{name} logged nothing")
        await anyio.sleep(AWAY_S)
        if how == "killed":
            await server.start()
        else:
            server.send_signal(signal.SIGCONT)
        run.say("the broker is back")
        await run.progress(20)
        assert all(child.restarts == 0 for child in run.cell.children.values())
        await run.judge()
