"""Each user of a cell may do what is its own, and nothing that is another's."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import msgspec
import pytest
from tests.support.brokers import Broker
from tests.support.waiting import until

from headgate.adapters.jetstream import Connection, NatsOptions, PermissionDenied, connect
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.jetstream.errors import NotSent, OutcomeUnknown
from headgate.adapters.jetstream.permissions import (
    ADMIN,
    FEED,
    NAMES,
    PROCESSES,
    READER,
    configuration,
    inbox_prefix,
    login_of,
    password_variable,
    users_of,
)
from headgate.adapters.jetstream.stream import ensure_stream, former_log_subjects, log_stream, stream_info
from headgate.adapters.jetstream.users import make_streams

pytestmark = pytest.mark.anyio

PATIENCE_S = 20.0
LOG, LEASES, SNAPSHOTS = "HEADGATE_main", "HEADGATE_main_LEASES", "HEADGATE_main_SNAPSHOTS"
FEED_STREAM = "HEADGATE_main_FEED"
STREAMS = (LOG, LEASES, SNAPSHOTS, FEED_STREAM)
SIX = set(PROCESSES)
NOBODY: set[str] = set()

MAY_PUBLISH: dict[str, set[str]] = {
    **{f"headgate.main.log.{name}": {name, ADMIN} for name in PROCESSES},
    **{f"headgate.main.lease.{name}": {name, ADMIN} for name in PROCESSES},
    "headgate.main.log.foreign": {ADMIN},
    "headgate.main.workload.admitted.team-a.w": {"snapshotter", ADMIN},
    "headgate.main.snapshot.manifest.x": {"snapshotter", ADMIN},
    "headgate.main.snapshot.chunk.x.y.0": {"snapshotter", ADMIN},
    **{f"$JS.API.STREAM.{verb}.{each}": {ADMIN} for verb in ("CREATE", "UPDATE", "PURGE") for each in STREAMS},
    f"$JS.API.STREAM.PURGE.{SNAPSHOTS}": {"snapshotter", ADMIN},
    **{f"$JS.API.STREAM.MSG.DELETE.{each}": {ADMIN} for each in STREAMS},
    f"$JS.API.STREAM.INFO.{LOG}": SIX | {READER, ADMIN},
    f"$JS.API.STREAM.INFO.{FEED_STREAM}": {"snapshotter", READER, FEED, ADMIN},
    f"$JS.API.CONSUMER.CREATE.{LOG}.x": SIX | {READER, ADMIN},
    f"$JS.API.CONSUMER.CREATE.{FEED_STREAM}.x": {READER, FEED, ADMIN},
    f"$JS.API.CONSUMER.CREATE.{LEASES}.x": {ADMIN},
    f"$JS.API.CONSUMER.LIST.{LOG}": {ADMIN},
    "$JS.API.STREAM.NAMES": {ADMIN},
    "headgate.other.log.scheduler": NOBODY,
    "$JS.API.STREAM.INFO.HEADGATE_other": NOBODY,
    "$JS.API.STREAM.CREATE.HEADGATE_other": NOBODY,
    "$SYS.REQ.SERVER.PING": NOBODY,
    "anything": NOBODY,
}
"""Who may publish on what, written down apart from the table that the configuration is made from."""

MAY_SUBSCRIBE: dict[str, set[str]] = {
    **{f"{inbox_prefix('main', name)}.>": {name} for name in NAMES},
    "_INBOX.>": NOBODY,
    ">": NOBODY,
    "headgate.>": NOBODY,
    "headgate.main.log.*": NOBODY,
    "headgate.main.lease.*": NOBODY,
    "headgate.main.workload.*.team-a.>": {FEED},
    "headgate.other.workload.*.team-a.>": NOBODY,
    "$JS.>": NOBODY,
    "$SYS.>": NOBODY,
}


@pytest.fixture(scope="module")
async def broker(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Broker]:
    async with Broker(tmp_path_factory.mktemp("nats")) as broker:
        await broker.admit("main")
        yield broker


@pytest.fixture
async def connected(broker: Broker) -> AsyncIterator[Callable]:
    """Connect as a user of the cell `main`."""
    async with AsyncExitStack() as stack:

        async def as_user(name: str) -> Connection:
            options = broker.options("main", name)
            return await stack.enter_async_context(connect(broker.url, name="test", options=options))

        yield as_user


async def may_publish(connection: Connection, subject: str) -> bool:
    """The body is no request that a stream's API could carry out."""
    try:
        with anyio.fail_after(PATIENCE_S):
            await connection.requests.request(subject, b"!", timeout_s=5)
    except PermissionDenied:
        return False
    except (NotSent, OutcomeUnknown):
        pass
    return True


@pytest.mark.parametrize("name", NAMES)
async def test_a_user_publishes_on_its_own_subjects_and_on_no_others(connected: Callable, name: str) -> None:
    """Commits, leases, snapshots and the feed each have one writer; streams are the admin's to make and to change."""
    connection = await connected(name)
    allowed = {subject for subject in MAY_PUBLISH if await may_publish(connection, subject)}
    assert allowed == {subject for subject, users in MAY_PUBLISH.items() if name in users}


@pytest.mark.parametrize("name", NAMES)
async def test_a_user_hears_its_own_inbox_and_no_other(connected: Callable, name: str) -> None:
    """What others are answered, and what they write, is not for it; the feed is for its subscribers."""
    connection = await connected(name)
    denied: set[str] = set()
    connection.on_denied(lambda _, subject: denied.add(subject))
    for subject in MAY_SUBSCRIBE:
        await connection.client.subscribe(subject)
    await connection.client.flush()
    expected = {subject.lower() for subject, users in MAY_SUBSCRIBE.items() if name not in users}
    await until(lambda: len(denied) >= len(expected), lambda: (denied, expected))
    assert denied == expected


async def test_a_subscriber_of_the_feed_hears_the_feed_alone(broker: Broker, connected: Callable) -> None:
    """A subscription as wide as it may be covers snapshots, too; they are not delivered."""
    feed = await connected(FEED)
    heard: list[str] = []

    async def hear(subject: bytes, *_: object) -> None:
        heard.append(subject.decode())

    await feed.subscribe("headgate.main.*.*.>", hear)
    await feed.client.flush()
    async with connect(broker.url, name="onlooker") as anybody:
        for subject in ("snapshot.manifest.x", "snapshot.chunk.a.b.0", "log.scheduler", "workload.admitted.ns.w"):
            await anybody.client.publish(f"headgate.main.{subject}", b"")
        await anybody.client.flush()
    await until(lambda: heard)
    assert heard == ["headgate.main.workload.admitted.ns.w"]


async def test_who_may_read_cannot_have_the_broker_write(broker: Broker, connected: Callable) -> None:
    """
    A consumer delivers to the subject of its maker's choice, and NATS does not check whether they may publish there.

    No stream and no API of JetStream takes such a delivery, so a reader that was stolen cannot write by it.
    """
    reader = await connected(READER)
    async with connect(broker.url, name="onlooker") as anybody:
        await anybody.publish("headgate.main.log.scheduler", b"x")
        before = [(await stream_info(anybody, stream)).state.last_seq for stream in STREAMS]
        for number, target in enumerate(
            ("headgate.main.lease.scheduler", "headgate.main.a.b.c.d", f"$JS.API.STREAM.DELETE.{LEASES}")
        ):
            config = (
                f'{{"stream_name":"{LOG}","action":"create","config":{{"name":"evil{number}","deliver_policy":"all",'
                f'"ack_policy":"none","replay_policy":"instant","mem_storage":true,"deliver_subject":"{target}"}}}}'
            )
            await reader.requests.request(f"$JS.API.CONSUMER.CREATE.{LOG}.evil{number}", config.encode())
        # What was delivered has been by the time that this consumer, made after the others, has delivered it here.
        heard = anyio.Event()

        async def hear(*_: object) -> None:
            heard.set()

        await anybody.subscribe("onlooker", hear)
        config = config.replace(target, "onlooker").replace("evil2", "last")
        await anybody.requests.request(f"$JS.API.CONSUMER.CREATE.{LOG}.last", config.encode())
        with anyio.fail_after(PATIENCE_S):
            await heard.wait()
        assert [(await stream_info(anybody, stream)).state.last_seq for stream in STREAMS] == before


# --- the configuration ---------------------------------------------------------------------------------------------


async def test_users_with_passwords_take_them_from_the_servers_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The printed block holds no secret in this form either, and works as it is printed."""
    for name in NAMES:
        monkeypatch.setenv(password_variable(name), f"word-{name}")
    config = configuration(users_of("main"))
    assert "word-" not in config
    async with EmbeddedServer(tmp_path, extra_config=config) as server:
        for name in (ADMIN, "scheduler"):
            options = NatsOptions(
                user=login_of("main", name), password=f"word-{name}", inbox_prefix=inbox_prefix("main", name)
            )
            async with connect(server.url, name="test", options=options) as connection:
                await ensure_stream(connection, log_stream("main"))


def test_a_domain_changes_the_subjects_of_the_api_alone() -> None:
    """Behind a leaf node clients name it: `$JS.<domain>.API`."""
    plain, named = users_of("main"), users_of("main", domain="hub")
    for one, other in zip(plain, named, strict=True):
        assert [each.replace("$JS.hub.API", "$JS.API") for each in other.publish] == list(one.publish)
        assert not any(each.startswith("$JS.API") for each in other.publish)
        assert one.subscribe == other.subscribe


def test_cells_have_no_right_in_common() -> None:
    """Two cells on one broker cannot reach each other."""
    a, b = ({subject for user in users_of(cell) for subject in (*user.publish, *user.subscribe)} for cell in ("a", "b"))
    assert a & b <= {"$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.LIST"}


async def test_a_log_of_an_earlier_version_is_narrowed_by_the_admin_alone(tmp_path: Path) -> None:
    """A process uses it unchanged and reports who can change it; the setup does, and keeps what it holds."""
    async with Broker(tmp_path) as broker:
        async with connect(broker.url, name="onlooker") as anybody:
            wide = msgspec.structs.replace(log_stream("main"), subjects=["headgate.main.log.*"])
            await ensure_stream(anybody, wide)
            await anybody.publish("headgate.main.log.scheduler", b"x")
        await broker.admit("main", with_streams=False)
        async with connect(broker.url, name="test", options=broker.options("main", "scheduler")) as scheduler:
            status = await ensure_stream(scheduler, log_stream("main"), former=former_log_subjects("main"))
            assert status.info.config.subjects == ["headgate.main.log.*"]
            assert "as an admin, with `headgate nats setup`" in status.warnings[0]
        async with connect(broker.url, name="test", options=broker.options("main", ADMIN)) as admin:
            log, *_ = await make_streams(admin, "main")
        assert sorted(log.info.config.subjects) == sorted(f"headgate.main.log.{name}" for name in PROCESSES)
        assert log.info.state.messages == 1
