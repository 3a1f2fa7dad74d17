"""
The settings of processes and commands: one YAML file, overridden by the environment, every mistake in one line.

`load` reads `headgate.yaml` (or the file named by HEADGATE_CONFIG or `--config`), applies the environment
(`HEADGATE_<SECTION>_<KEY>`, `HEADGATE_CELL`, and the common `NATS_URL`) and decodes the result strictly: an unknown key
and a value of the wrong type are refused, with the file (or variable), the key, the value and the remedy. The command
line prints the line and exits with code 2.

The types below are the reference: every key, its unit (last in its name) and its default.
"""
# Over 400 lines: the reference of all settings, one type for each section, with the code that reads them.

import difflib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
import yaml
from msgspec import Meta

from headgate.adapters.jetstream.options import NatsOptions, without_secrets
from headgate.adapters.jetstream.permissions import inbox_prefix
from headgate.adapters.yaml_text import check_depth
from headgate.events.subjects import check_cell

PREFIX: Final = "HEADGATE_"
FILE: Final = "headgate.yaml"
"""Read from the working directory when no file is named. It may be absent."""

Count = Annotated[int, Meta(ge=1)]
Port = Annotated[int, Meta(ge=0, le=65535)]
Share = Annotated[float, Meta(ge=0, le=1)]


class SettingsError(Exception):
    """Raised when the settings hold a mistake. The message is one line; exit code 2."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all sections."""


class NatsSettings(Section, frozen=True):
    """
    The broker.

    `url` may name several servers, separated by commas. `replicas` is the replica count of new streams. `monitor_url`
    is a server's monitoring port: only it reports whether the server syncs every write. A secret is named by a file
    (`password_file`, `token_file`, `creds_file`, `nkey_seed_file`), which is read anew at each connection, or given.
    `inbox_prefix` "" is that of the user that `headgate nats permissions` prints for a process, or for reading.
    """

    url: str = "nats://127.0.0.1:4222"
    monitor_url: str = ""
    replicas: Annotated[int, Meta(ge=1, le=5)] = 1
    user: str | None = None
    password: str | None = None
    password_file: str | None = None
    token: str | None = None
    token_file: str | None = None
    creds_file: str | None = None
    nkey_seed_file: str | None = None
    inbox_prefix: Annotated[str, Meta(pattern=r"^[^\s.*>]*$")] = ""
    tls_required: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_hostname: str | None = None
    js_domain: str | None = None

    def options(self, cell: str, name: str) -> NatsOptions:
        """As the adapter takes them, for the user `name` of a cell (`headgate.adapters.jetstream.permissions`)."""
        fields = {each: getattr(self, each) for each in self.__struct_fields__ if each in NatsOptions.__struct_fields__}
        return NatsOptions(**{**fields, "inbox_prefix": self.inbox_prefix or inbox_prefix(cell, name)})

    def __repr__(self) -> str:
        """Without secrets."""
        return f"NatsSettings(url={without_secrets(self.url)!r})"


class KubernetesSettings(Section, frozen=True):
    """
    The API server.

    `server` is a URL without credentials; otherwise `kubeconfig` and `context`, KUBECONFIG, the pod's service account
    or ~/.kube/config are used, in this order. The rest limits the requests of one process.
    """

    server: str | None = None
    kubeconfig: str | None = None
    context: str | None = None
    qps: Annotated[float, Meta(gt=0)] = 500.0
    burst: Count = 1000
    in_flight_max: Count = 32


class LogSettings(Section, frozen=True):
    """What the process writes to stderr. `level` as in Python's logging, in lower case."""

    format: Literal["human", "json"] = "human"
    level: Literal["debug", "info", "warning", "error"] = "info"


class HttpSettings(Section, frozen=True):
    """
    Where /healthz, /readyz and /metrics are served, and by the snapshotter the read side.

    Port 0 takes a free one; the address is logged, and written to `address_file` if one is named. `authentication`
    decides who may use the read side: with `kubernetes` callers present a token, and the API server decides what they
    may see; with `off` all callers see everything; `auto` is `kubernetes` in a pod, and `off` on loopback; elsewhere
    the read side does not start. With a certificate and its key everything is served over TLS.
    """

    host: str = "127.0.0.1"
    port: Port = 0
    address_file: str = ""
    authentication: Literal["auto", "kubernetes", "off"] = "auto"
    tls_cert_file: str = ""
    tls_key_file: str = ""


class LeaseSettings(Section, frozen=True):
    """How long a leader keeps its lease without renewing it: the time that a takeover takes."""

    term_ms: Annotated[int, Meta(ge=300)] = 5_000


class SnapshotSettings(Section, frozen=True):
    """
    When the snapshotter takes one, and how many are kept.

    After so many commits, so long after the last one if there was any, and after `idle_ms` without commits. `verify`
    folds the log between two again and compares.
    """

    commits: Count = 20_000
    every_ms: Count = 300_000
    idle_ms: Count = 15_000
    keep: Annotated[int, Meta(ge=2)] = 4
    verify: bool = True


class FeedSettings(Section, frozen=True):
    """The feed: one CloudEvent per event. `batch_max` are in flight at once."""

    enabled: bool = True
    batch_max: Count = 512


class BridgeSettings(Section, frozen=True):
    """
    The informer bridge. `page_items` is the page size of lists, `stimuli_max` bounds its pending stimuli.

    `resumes` lets it continue from the versions that the log marks, instead of listing everything at each start. It
    does so only when the API server proves that its history is the one they belong to, so nothing has to be switched
    off after its data were restored from a backup. `configuration` is a file of Kueue's Configuration
    (`headgate.core.config.reader`) for the log; "" leaves the log's as it is, and gives a new log Kueue's defaults.
    """

    page_items: Count = 500
    stimuli_max: Count = 2_000
    resumes: bool = True
    configuration: str = ""


class PlacementSettings(Section, frozen=True):
    """
    The placement of pods on nodes, for the informer bridge, the scheduler and the binder.

    `configuration` is a file of kubescheduler.config.k8s.io/v1, which the informer bridge puts into the log; pods that
    name one of its profiles are placed. "" leaves the log's as it is; `none`, or an empty file, places no pods. The
    scheduler and the binder read of the file how to reach extenders over TLS, which the log does not have; without a
    file they call those of the log's configuration, without anything that a `tlsConfig` would say.
    """

    configuration: str = ""


class KeysSettings(Section, frozen=True):
    """
    The keys that commits are signed with (`headgate keys generate`): this process's private file, and all public keys.

    Once the informer bridge has them, the log accepts signed commits only. `signing: off`, set for the bridge, reverts
    that.
    """

    private: str = ""
    public: str = ""
    signing: Literal["required", "off"] = "required"


class RecordSettings(Section, frozen=True):
    """
    The cluster's record of its cell (`headgate.processes.runtime.cell_record`), which the bridge keeps in a ConfigMap.

    It distinguishes a broker that has lost the log from a new one.
    """

    namespace: str = "headgate-system"
    every_ms: Annotated[int, Meta(ge=100)] = 30_000


class BinderSettings(Section, frozen=True):
    """
    The binder. `events` selects which Kubernetes Events it writes.

    `summary`: admissions, evictions, starts and stops, and the reason why a workload waits, as far as the load of the
    API server permits. `all`: each that Kueue writes, at a higher rate. `off`: none.
    """

    events: Literal["off", "summary", "all"] = "summary"


class WebhookSettings(Section, frozen=True):
    """
    The webhook server.

    It issues its certificate itself and keeps it in the Secret `secret` of `namespace`, for the Service `service`
    there; with `tls_cert_file` and `tls_key_file` it uses the certificate of these files, which cert-manager may write.
    `names` are further DNS names of its own certificate, separated by commas, for API servers that reach it by them.
    """

    host: str = "0.0.0.0"  # noqa: S104 - the API server calls it from outside of the pod
    port: Port = 9443
    namespace: str = "headgate-system"
    service: str = "headgate-webhook"
    secret: str = "headgate-webhook-certificates"  # noqa: S105 - a name
    names: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""


class VisibilitySettings(Section, frozen=True):
    """
    The visibility API for an APIService: HTTPS for the aggregator of the API server, served by the snapshotter.

    It issues its certificate itself and keeps it in the Secret `secret` of `namespace`, for the Service `service`
    there; with `tls_cert_file` and `tls_key_file` it uses the certificate of these files.
    """

    enabled: bool = False
    host: str = "0.0.0.0"  # noqa: S104 - the API server calls it from outside of the pod
    port: Port = 8082
    namespace: str = "headgate-system"
    service: str = "headgate-visibility"
    secret: str = "headgate-visibility-certificates"  # noqa: S105 - a name
    tls_cert_file: str = ""
    tls_key_file: str = ""


class TracingSettings(Section, frozen=True):
    """
    Where spans go.

    `otlp` needs the package opentelemetry-exporter-otlp-proto-http. `sampled` is the share of commits that get a span.
    """

    exporter: Literal["none", "console", "otlp"] = "none"
    endpoint: str = ""
    sampled: Share = 1.0


class LimitSettings(Section, frozen=True):
    """
    The bounds inside each process.

    Log entries that wait to be folded, unanswered calls (beyond it no decision is taken), bytes of one commit, and the
    maximum duration of a shutdown.
    """

    entries_max: Count = 20_000
    calls_max: Count = 2_048
    commit_bytes_max: Annotated[int, Meta(ge=1024)] = 900_000
    shutdown_ms: Count = 10_000


class Settings(Section, frozen=True):
    """
    All settings.

    `holder` names this instance in leases and in the log: give each a unique name (a pod's name), and a restarted
    instance takes over at once; "" makes one from host name and process id.
    """

    cell: str = "main"
    holder: str = ""
    nats: NatsSettings = NatsSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    log: LogSettings = LogSettings()
    http: HttpSettings = HttpSettings()
    lease: LeaseSettings = LeaseSettings()
    snapshots: SnapshotSettings = SnapshotSettings()
    feed: FeedSettings = FeedSettings()
    bridge: BridgeSettings = BridgeSettings()
    placement: PlacementSettings = PlacementSettings()
    keys: KeysSettings = KeysSettings()
    record: RecordSettings = RecordSettings()
    binder: BinderSettings = BinderSettings()
    webhook: WebhookSettings = WebhookSettings()
    visibility: VisibilitySettings = VisibilitySettings()
    tracing: TracingSettings = TracingSettings()
    limits: LimitSettings = LimitSettings()


SECTIONS: Final[Mapping[str, type[Section]]] = {
    field.name: field.type
    for field in msgspec.structs.fields(Settings)
    if isinstance(field.type, type) and issubclass(field.type, Section)
}
PLAIN: Final = tuple(field for field in Settings.__struct_fields__ if field not in SECTIONS)


class Flag(NamedTuple):
    """A flag of the command line: its name, the keys of its setting, its value."""

    name: str
    keys: tuple[str, ...]
    value: str


class LoadedSettings(NamedTuple):
    """Settings, and whether a broker was configured or is only the default one."""

    settings: Settings
    names_broker: bool


def load(
    path: str | Path | None = None, environ: Mapping[str, str] | None = None, flags: Iterable[Flag] = ()
) -> Settings:
    """
    The settings in effect: the file, overridden by the environment, overridden by the flags of the command line.

    `path` must exist if given; without it HEADGATE_CONFIG, then ./headgate.yaml if it is there.

    Raises SettingsError, whose message is one line.
    """
    return load_all(path, environ, flags).settings


def load_all(
    path: str | Path | None = None, environ: Mapping[str, str] | None = None, flags: Iterable[Flag] = ()
) -> LoadedSettings:
    """The result of `load`, and the source of the broker's address. Raises SettingsError."""
    environ = os.environ if environ is None else environ
    named = path if path is not None else environ.get("HEADGATE_CONFIG") or None
    file = Path(named) if named is not None else Path(FILE)
    tree = _read(file, must_exist=named is not None)
    origins: dict[tuple[str, ...], str] = {}
    for variable, keys, value in (*_overrides(environ), *flags):
        _put(tree, keys, value, file)
        origins[keys] = variable
    names_broker = isinstance(tree.get("nats"), dict) and "url" in tree["nats"]
    try:
        settings = msgspec.convert(tree, Settings, strict=False)
    except msgspec.ValidationError as error:
        raise SettingsError(_explain(error, tree, str(file), origins)) from error
    try:
        check_cell(settings.cell)
    except ValueError as error:
        raise SettingsError(f"{origins.get(('cell',), file)}: {error}") from error
    _check_nats(settings.nats, origins, file)
    return LoadedSettings(settings, names_broker)


def _check_nats(nats: NatsSettings, origins: Mapping[tuple[str, ...], str], file: Path) -> None:
    """Check for mistakes that involve two keys."""

    def mistake(key: str, text: str) -> SettingsError:
        return SettingsError(f"{origins.get(('nats', key), file)}: nats.{key}: {text}")

    for key in ("password", "token"):
        if getattr(nats, key) is not None and getattr(nats, f"{key}_file") is not None:
            raise mistake(f"{key}_file", f"nats.{key} is given too: leave out one of them")
    if nats.user is not None and nats.password is None and nats.password_file is None:
        raise mistake("user", "it has no password: give nats.password_file, or an nkey_seed_file or creds_file alone")
    if nats.user is None and (nats.password is not None or nats.password_file is not None):
        raise mistake("password" if nats.password is not None else "password_file", "whose? give nats.user, too")
    if nats.tls_key_file is not None and nats.tls_cert_file is None:
        raise mistake("tls_key_file", "a key needs its certificate: give nats.tls_cert_file, too")


def _read(file: Path, *, must_exist: bool) -> dict[str, Any]:
    try:
        text = file.read_text()
    except FileNotFoundError:
        if must_exist:
            raise SettingsError(
                f"{file}: there is no such file; name another with --config or HEADGATE_CONFIG"
            ) from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read: {error}") from error
    try:
        check_depth(text)
        tree = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"{file}: this is not YAML: {' '.join(str(error).split())}") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise SettingsError(f"{file}: the file must hold keys and values, not {_kind(tree)}")
    return tree


_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT\w*)$|_PORT_\d+_(TCP|UDP)\w*$")


def _overrides(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """The environment variables that are settings: name, path of keys, value."""
    if "NATS_URL" in environ:
        yield "NATS_URL", ("nats", "url"), environ["NATS_URL"]
    for variable, value in sorted(environ.items()):
        words = variable.removeprefix(PREFIX).lower()
        if not variable.startswith(PREFIX) or variable == "HEADGATE_CONFIG" or _is_service_link(variable, value):
            continue
        if words in PLAIN:
            yield variable, (words,), value
            continue
        section, _, key = words.partition("_")
        if section not in SECTIONS:
            # Other tools, and tests, may have variables of this prefix.
            continue
        if key not in SECTIONS[section].__struct_fields__:
            known = [f"{PREFIX}{section}_{each}".upper() for each in SECTIONS[section].__struct_fields__]
            shown = variable if section == "nats" else f"{variable}={value}"  # a mistyped password is a password too
            raise SettingsError(f"environment: {shown}: there is no such setting{_meant(variable, known)}")
        yield variable, (section, key), value


def _is_service_link(variable: str, value: str) -> bool:
    """Whether Kubernetes set the variable for a Service called headgate: those look like settings but are none."""
    return bool(_SERVICE_LINK.search(variable)) or (
        variable.endswith("_PORT") and value.startswith(("tcp://", "udp://"))
    )


def _put(tree: dict[str, Any], keys: tuple[str, ...], value: str, file: Path) -> None:
    *path, last = keys
    for key in path:
        inner = tree.setdefault(key, {})
        if inner is None:
            inner = tree[key] = {}
        if not isinstance(inner, dict):
            raise SettingsError(f"{file}: {key}: must hold keys and values, not {_kind(inner)}")
        tree = inner
    tree[last] = value


_AT = re.compile(r" - at `\$\.?(?P<path>[^`]*)`$")
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<field>[^`]*)`")


def _explain(
    error: msgspec.ValidationError, tree: dict[str, Any], file: str, origins: dict[tuple[str, ...], str]
) -> str:
    """One line: the source, the key, the value, and the remedy."""
    text = str(error)
    at = _AT.search(text)
    keys = tuple(at["path"].split(".")) if at and at["path"] else ()
    what = _AT.sub("", text)
    unknown = _UNKNOWN.search(what)
    if unknown:
        field = unknown["field"]
        known = list(SECTIONS[keys[0]].__struct_fields__ if keys else Settings.__struct_fields__)
        return f"{file}: {'.'.join((*keys, field))}: there is no such key{_meant(field, known)}"
    value: Any = tree
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    where = origins.get(keys, file)
    shown = "(hidden)" if keys and keys[-1] in ("password", "token") else without_secrets(repr(value))
    expected = what[0].lower() + what[1:]
    key = ".".join(keys) or "the file"
    return f"{where}: {key}: {shown} cannot be used: {expected.replace('`', '')}; correct the value or leave it out"


def _meant(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]}?" if close else f"; there is {', '.join(known)}"


def _kind(value: object) -> str:
    match value:
        case list():
            return "a list"
        case str() | int() | float() | bool():
            return f"the value {value!r}"
        case _:
            return "nothing"
