"""Settings: what is read from where, and that each mistake is one line with the remedy."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.processes.runtime.settings import (
    SECTIONS,
    Flag,
    NatsSettings,
    Section,
    Settings,
    SettingsError,
    load,
    load_all,
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "headgate.yaml"


def test_without_a_file_the_defaults_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file in the working directory may be absent."""
    monkeypatch.chdir(tmp_path)
    assert load(environ={}) == Settings()


def test_a_file_in_the_working_directory_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`headgate.yaml` needs no flag."""
    (tmp_path / "headgate.yaml").write_text("cell: lab\nlease: {term_ms: 900}\n")
    monkeypatch.chdir(tmp_path)
    settings = load(environ={})
    assert (settings.cell, settings.lease.term_ms) == ("lab", 900)


def test_the_environment_is_laid_over_the_file(file: Path) -> None:
    """A variable wins over the file, and NATS_URL is known by its common name."""
    file.write_text("nats: {url: nats://file:4222, replicas: 3}\nhttp:\n")
    environ = {"NATS_URL": "nats://env:4222", "HEADGATE_HTTP_PORT": "8080", "HEADGATE_CELL": "lab"}
    settings = load(file, environ)
    assert (settings.nats.url, settings.nats.replicas) == ("nats://env:4222", 3)
    assert (settings.http.port, settings.cell) == (8080, "lab")


def test_what_kubernetes_puts_there_for_a_service_is_no_setting() -> None:
    """Service links of a Service called headgate, or headgate-http, do not stop a pod."""
    environ = {
        "HEADGATE_SERVICE_HOST": "10.0.0.1",
        "HEADGATE_PORT": "tcp://10.0.0.1:80",
        "HEADGATE_PORT_80_TCP_ADDR": "10.0.0.1",
        "HEADGATE_HTTP_PORT": "tcp://10.0.0.1:80",
        "HEADGATE_HTTP_SERVICE_PORT": "80",
    }
    assert load(environ=environ) == Settings()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lease: {term: 5}", "lease.term: there is no such key; did you mean term_ms?"),
        ("laese: {term_ms: 5}", "laese: there is no such key; did you mean lease?"),
        ("lease: {term_ms: soon}", "lease.term_ms: 'soon' cannot be used: expected int"),
        ("lease: {term_ms: 1}", "lease.term_ms: 1 cannot be used: expected int >= 300"),
        ("log: {format: xml}", "log.format: 'xml' cannot be used: invalid enum value"),
        ("nats: {token: [hush]}", "nats.token: (hidden) cannot be used"),
        ("cell: Lab_1", "cell 'Lab_1' is not a DNS label"),
        ("- a", "the file must hold keys and values, not a list"),
        ("a: [", "this is not YAML"),
        ("nats: 5", "nats: 5 cannot be used: expected object"),
    ],
)
def test_a_mistake_in_the_file_is_one_line(file: Path, text: str, expected: str) -> None:
    """The line names file, key and value, and what would do."""
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load(file, {})
    assert expected in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("HEADGATE_LEASE_TERM_MS", "soon", "HEADGATE_LEASE_TERM_MS: lease.term_ms: 'soon' cannot be used"),
        ("HEADGATE_LEASE_TERM", "5", "there is no such setting; did you mean HEADGATE_LEASE_TERM_MS?"),
        ("HEADGATE_CELL", "A", "HEADGATE_CELL: cell 'A' is not a DNS label"),
    ],
)
def test_a_mistake_in_the_environment_names_the_variable(variable: str, value: str, expected: str) -> None:
    """The line names the source of the value."""
    with pytest.raises(SettingsError) as caught:
        load(environ={variable: value})
    assert expected in str(caught.value)


def test_a_file_that_is_named_must_exist(file: Path) -> None:
    """A mistyped --config is not silently the default."""
    with pytest.raises(SettingsError, match="there is no such file"):
        load(file, {})
    with pytest.raises(SettingsError, match="there is no such file"):
        load(environ={"HEADGATE_CONFIG": str(file)})


COMPANIONS = {
    "user": {"HEADGATE_NATS_PASSWORD_FILE": "p"},
    "password": {"HEADGATE_NATS_USER": "u"},
    "password_file": {"HEADGATE_NATS_USER": "u"},
    "tls_key_file": {"HEADGATE_NATS_TLS_CERT_FILE": "c"},
}
"""Keys that make sense only with another."""


@given(st.sampled_from(sorted(SECTIONS)), st.data())
def test_every_key_of_every_section_has_its_variable(section: str, data: st.DataObject) -> None:
    """HEADGATE_<SECTION>_<KEY> reaches the key it names."""
    field = data.draw(st.sampled_from(msgspec.structs.fields(SECTIONS[section])))
    default: object = getattr(getattr(Settings(), section), field.name)
    value = "a" if default is None or (isinstance(default, str) and not default) else str(default)
    others = COMPANIONS.get(field.name, {}) if section == "nats" else {}
    settings = load(environ={f"HEADGATE_{section}_{field.name}".upper(): value, **others})
    changed = getattr(getattr(settings, section), field.name)
    assert isinstance(getattr(settings, section), Section)
    assert changed == (default if value != "a" else "a")


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"HEADGATE_NATS_USER": "u"}, "HEADGATE_NATS_USER: nats.user: it has no password"),
        ({"HEADGATE_NATS_PASSWORD": "hush"}, "HEADGATE_NATS_PASSWORD: nats.password: whose"),
        (
            {"HEADGATE_NATS_USER": "u", "HEADGATE_NATS_PASSWORD": "hush", "HEADGATE_NATS_PASSWORD_FILE": "f"},
            "HEADGATE_NATS_PASSWORD_FILE: nats.password_file: nats.password is given too",
        ),
        ({"HEADGATE_NATS_TLS_KEY_FILE": "k"}, "nats.tls_key_file: a key needs its certificate"),
        ({"HEADGATE_NATS_PASSWRD": "hush"}, "environment: HEADGATE_NATS_PASSWRD: there is no such setting; did you"),
        ({"HEADGATE_NATS_INBOX_PREFIX": "a.b"}, "HEADGATE_NATS_INBOX_PREFIX: nats.inbox_prefix"),
    ],
)
def test_mistakes_about_credentials_are_told_without_them(environ: dict[str, str], words: str) -> None:
    """Variables that contradict each other or are mistyped: one line that names them, and never a secret."""
    with pytest.raises(SettingsError) as caught:
        load(environ=environ)
    assert words in str(caught.value)
    assert "hush" not in str(caught.value)


def test_flags_count_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    """And it is recorded whether a broker was named, because the default address is no choice."""
    file = tmp_path / "headgate.yaml"
    file.write_text("nats: {url: nats://file:1, user: file, password_file: f, tls_ca_file: file}\n")
    flag = Flag("--nats-user", ("nats", "user"), "flag")
    loaded = load_all(file, {"HEADGATE_NATS_USER": "env", "HEADGATE_NATS_TLS_CA_FILE": "env"}, [flag])
    nats = loaded.settings.nats
    assert (nats.url, nats.user, nats.tls_ca_file, loaded.names_broker) == ("nats://file:1", "flag", "env", True)
    assert not load_all(environ={}).names_broker


def test_settings_never_show_a_secret() -> None:
    """Settings end up in messages and tracebacks."""
    settings = NatsSettings(url="nats://u:hush@host:1", user="u", password="hush", token="hush")
    assert "hush" not in repr(settings)
    assert "hush" not in repr(settings.options("main", "scheduler"))
    assert settings.options("main", "scheduler").inbox_prefix == "_INBOX_headgate_main_scheduler"
