"""How clients reach NATS: by which credentials, over which TLS, and the error when either is wrong."""

import shutil
import stat
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.pki import make_authority, make_certificate
from tests.support.waiting import until

from headgate.adapters.jetstream import (
    BrokerError,
    Dependency,
    DependencyHealth,
    NatsOptions,
    PermissionDenied,
    connect,
)
from headgate.adapters.jetstream.connection import Connection
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.jetstream.nkeys import UserKey
from headgate.adapters.jetstream.options import without_secrets
from headgate.adapters.jetstream.stream import ensure_stream, log_stream, stream_info
from headgate.adapters.jetstream.tail import JetStreamTail
from headgate.adapters.private import write_private

pytestmark = pytest.mark.anyio

PATIENCE_S = 10.0
SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
PUBLIC = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
"""The pair of the NATS documentation's examples."""


def user(name: str, publish: str = ">", subscribe: str = ">") -> str:
    return (
        f'{{ user: {name}, password: p, permissions: {{ publish: {{ allow: ["{publish}"] }}, '
        f'subscribe: {{ allow: ["{subscribe}"] }} }} }}'
    )


def authorization(*users: str) -> str:
    return f"authorization {{ users: [ {', '.join(users)} ] }}"


# --- credentials ---------------------------------------------------------------------------------------------------


def test_an_nkey_is_read_and_written_as_nats_does() -> None:
    """The pair of the documentation; a new key survives the way through its seed; other keys are refused."""
    assert UserKey.of_seed(SEED).public == PUBLIC
    assert UserKey.of_seed(SEED).seed == SEED
    key = UserKey.generate()
    assert UserKey.of_seed(key.seed + "\n").public == key.public
    assert key.seed not in repr(key)
    for wrong in ("", PUBLIC, SEED[:-1] + "A", "SAAC" + SEED[4:]):
        with pytest.raises(ValueError):
            UserKey.of_seed(wrong)


async def test_a_client_shows_its_nkey_or_a_password_from_a_file(tmp_path: Path) -> None:
    """Each way of authenticating that has a file works from it, and a new content counts from the next connection."""
    write_private(tmp_path / "nk", SEED)
    write_private(tmp_path / "word", "wrong\n")
    config = f"authorization {{ users: [ {{ nkey: {PUBLIC} }}, {{ user: u, password: right }} ] }}"
    async with EmbeddedServer(tmp_path / "nats", extra_config=config) as server:
        async with connect(server.url, name="test", options=NatsOptions(nkey_seed_file=str(tmp_path / "nk"))):
            pass
        by_word = NatsOptions(user="u", password_file=str(tmp_path / "word"), reconnect_wait_s=0.02)
        with pytest.raises(BrokerError, match="refuses this client"):
            async with connect(server.url, name="test", options=by_word):
                pass
        write_private(tmp_path / "word", "right\n")
        async with connect(server.url, name="test", options=by_word) as connection:
            await server.restart()
            await until(lambda: connection.is_connected)


@pytest.mark.parametrize(
    "options",
    [
        NatsOptions(nkey_seed_file="absent"),
        NatsOptions(creds_file="absent"),
        NatsOptions(user="u", password_file="absent"),
        NatsOptions(tls_ca_file="absent"),
    ],
)
async def test_a_file_that_is_not_there_is_named(options: NatsOptions) -> None:
    """One line with the path, at once: no server is contacted."""
    with anyio.fail_after(PATIENCE_S), pytest.raises(BrokerError, match="absent"):
        async with connect("nats://127.0.0.1:1", name="test", options=options):
            pass


def test_a_url_is_shown_without_what_is_secret() -> None:
    """Passwords with odd characters too, and every one of several servers."""
    assert without_secrets("tls://u:p@w@host:4222") == "tls://host:4222"
    assert without_secrets("nats://u:p@a:1,tls://t@b:2,c:3") == "nats://a:1,tls://b:2,c:3"


def test_a_private_file_is_its_owners_alone(tmp_path: Path) -> None:
    """Also where a readable one was before."""
    path = tmp_path / "secret"
    path.write_text("old")
    path.chmod(0o644)
    write_private(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


# --- permissions ---------------------------------------------------------------------------------------------------


@pytest.fixture
async def least(tmp_path: Path) -> AsyncIterator[Callable[[str], tuple[str, NatsOptions]]]:
    """Options for users of one server: `full`, `none` (nothing but its inbox), `deaf` (no inbox either)."""
    config = authorization(
        user("full"),
        user("none", "nothing", "_INBOX_none.>"),
        user("looker", "$JS.API.*.INFO.*", "_INBOX_looker.>"),
        user("maker", '$JS.API.STREAM.>", "$JS.API.CONSUMER.CREATE.>', "_INBOX_maker.>"),
        user("deaf", ">", "nothing"),
    )
    async with EmbeddedServer(tmp_path / "nats", extra_config=config) as server:
        yield lambda name: (
            server.url,
            NatsOptions(user=name, password="p", inbox_prefix=f"_INBOX_{name}" if name != "full" else "_INBOX"),
        )


async def test_a_denied_request_is_one_clear_line_at_once(least: Callable) -> None:
    """NATS drops it and leaves the client waiting; here it fails at once, with user, subject and remedy."""
    url, options = least("none")
    async with connect(url, name="test", options=options) as connection:
        for act, subject in (
            (lambda: connection.publish("headgate.main.log.Scheduler", b""), "headgate.main.log.Scheduler"),
            (lambda: stream_info(connection, "HEADGATE_main"), "$JS.API.STREAM.INFO.HEADGATE_main"),
        ):
            with anyio.fail_after(PATIENCE_S), pytest.raises(PermissionDenied) as caught:
                await act()
            assert str(caught.value) == (
                f"user none may not publish on {subject}: "
                "give it the permissions that `headgate nats permissions` prints"
            )


async def test_a_denied_inbox_ends_the_connection_with_the_setting_to_look_at(least: Callable) -> None:
    """No answer could ever come."""
    url, options = least("deaf")
    async with connect(url, name="test", options=options) as connection:
        with (
            anyio.fail_after(PATIENCE_S),
            pytest.raises(BrokerError, match=r"user deaf may not subscribe to") as caught,
        ):
            await stream_info(connection, "HEADGATE_main")
    assert "nats.inbox_prefix (_INBOX_deaf)" in str(caught.value)


async def test_a_tail_that_may_not_ask_for_entries_says_so(least: Callable) -> None:
    """It may make its consumer and not read from it: pull requests have no answer that could fail."""
    url, options = least("full")
    async with connect(url, name="test", options=options) as connection:
        await ensure_stream(connection, log_stream("main"))
    url, options = least("maker")
    async with (
        connect(url, name="test", options=options) as connection,
        JetStreamTail(connection, "HEADGATE_main", start=1) as tail,
    ):
        with anyio.fail_after(PATIENCE_S), pytest.raises(PermissionDenied, match=r"on \$js.api.consumer.msg.next"):
            await tail.receive()


async def test_a_stream_that_this_user_may_not_make_is_waited_for(least: Callable) -> None:
    """The admin may make it at any moment; until then the dependency's status has the remedy."""
    url, options = least("looker")
    health = DependencyHealth()
    _, full = least("full")
    async with connect(url, name="test", options=options, health=health) as looker:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ensure_stream, looker, log_stream("main"))
            await until(
                lambda: any(
                    "user looker may not create it: `headgate nats setup`" in each.error
                    for each in health.dependencies()
                )
            )
            async with connect(url, name="test", options=full) as admin:
                await ensure_stream(admin, log_stream("main"))
        assert health.ok
        with pytest.raises(PermissionDenied):
            await ensure_stream(looker, log_stream("other"), may_wait=False)


# --- TLS -----------------------------------------------------------------------------------------------------------

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two authorities; the first signed a server's certificate, one that has expired, and a client's."""
    home = tmp_path_factory.mktemp("pki")
    make_authority(home)
    make_authority(home, "other")
    here = "subjectAltName=IP:127.0.0.1"
    make_certificate(home, "server", subject="/CN=nats", extension=here)
    make_certificate(home, "elsewhere", subject="/CN=nats", extension="subjectAltName=DNS:nats.test")
    make_certificate(home, "expired", subject="/CN=nats", extension=here, expired=True)
    make_certificate(home, "client", subject="/CN=client", extension="extendedKeyUsage=clientAuth")
    return home


def tls(pki: Path, certificate: str, more: str = "") -> str:
    return f'tls {{ cert_file: "{pki}/{certificate}.crt", key_file: "{pki}/{certificate}.key" {more} }}'


async def trouble(url: str, options: NatsOptions) -> str:
    """What is announced while no connection comes about."""
    said: list[Dependency] = []
    with anyio.move_on_after(PATIENCE_S) as scope:
        async with anyio.create_task_group() as tasks:

            def listen(dependency: Dependency) -> None:
                said.append(dependency)
                if len(said) > 1:
                    tasks.cancel_scope.cancel()

            async def dial() -> None:
                async with connect(url, name="test", options=options, health=DependencyHealth(listen)):
                    pytest.fail("connected")

            tasks.start_soon(dial)
    assert not scope.cancelled_caught, said
    return said[1].error


@needs_openssl
@pytest.mark.parametrize(
    ("certificate", "authority", "words"),
    [
        ("server", "other", "it is not signed by nats.tls_ca_file"),
        ("expired", "ca", "it has expired"),
        ("elsewhere", "ca", "it is for another name"),
    ],
)
async def test_a_certificate_that_is_refused_is_told_by_its_fault(
    tmp_path: Path, pki: Path, certificate: str, authority: str, words: str
) -> None:
    """In one line, once, while attempts continue: it may be renewed."""
    async with EmbeddedServer(tmp_path, extra_config=tls(pki, certificate)) as server:
        said = await trouble(server.url, NatsOptions(tls_ca_file=str(pki / f"{authority}.crt")))
        assert said.startswith("TLS: the server's certificate is refused")
        assert words in said


@needs_openssl
async def test_the_right_authority_name_and_client_certificate_connect(tmp_path: Path, pki: Path) -> None:
    """`nats.tls_hostname` is the expected name; a server that verifies clients gets a certificate."""
    more = f', ca_file: "{pki}/ca.crt", verify: true'
    mine: dict[str, Any] = {"tls_cert_file": str(pki / "client.crt"), "tls_key_file": str(pki / "client.key")}
    authority: dict[str, Any] = {"tls_ca_file": str(pki / "ca.crt"), "tls_hostname": "nats.test"}
    async with EmbeddedServer(tmp_path, extra_config=tls(pki, "elsewhere", more)) as server:
        async with connect(server.url, name="test", options=NatsOptions(**authority, **mine)) as connection:
            assert isinstance(connection, Connection)
        said = await trouble(server.url, NatsOptions(**authority))
        assert "client's certificate" in said or "Connection" in said or "closed" in said, said


@needs_openssl
@pytest.mark.parametrize("scheme", ["tls", "nats"])
async def test_no_credential_goes_to_a_server_without_tls(tmp_path: Path, scheme: str) -> None:
    """A `tls://` URL and `nats.tls_required` are enforced: nothing is sent in plain text; the line has the reason."""
    options = NatsOptions(user="u", password="hush", tls_required=scheme == "nats")
    async with EmbeddedServer(tmp_path, extra_config="trace: true\ndebug: true") as server:
        said = await trouble(server.url.replace("nats://", f"{scheme}://"), options)
        assert "speaks plain text only: nothing was sent to it" in said
        assert not [line for line in server.log_lines(10_000) if "CONNECT {" in line]
