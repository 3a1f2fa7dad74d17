"""
Selecting the cluster and the credentials: flags and environment become a `ClusterAccess`.

Resolution happens once, at start, before any connection. It reads the files that are named, so that a missing file, an
unknown context or a cluster without a server is one clear line (exit code 2 at the command line) and not a traceback
minutes later. It reads no secret: credentials are loaded by `credentials.load_credentials` when a transport opens.

The order is that of the Kubernetes controllers: `--server`, then `--kubeconfig`, then `$KUBECONFIG`, then the service
account of the current pod, then `~/.kube/config`. Several files in `$KUBECONFIG` are merged as kubectl merges them: the
first to define a name, or the current context, wins.
"""

import enum
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec
import yaml

from headgate.adapters.kubernetes.errors import KubeConfigurationError

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Authentication(enum.Enum):
    """The client's authentication method, as far as the adapter must distinguish them."""

    NONE = "none"
    #: A token, a password or a client certificate in the configuration that does not change by itself.
    STATIC = "static"
    #: A token in a file that another program renews, as kubelets do for pods.
    FILE = "file"
    #: An exec plugin or an auth provider: called again when the credential expires or is refused.
    PLUGIN = "plugin"


class ClusterAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The selected cluster. Holds no secret, so it may be logged."""

    #: Base URL without a trailing slash.
    server: str
    authentication: Authentication = Authentication.NONE
    #: Kubeconfig files that credentials and TLS material come from; empty if none.
    kubeconfig: tuple[str, ...] = ()
    context: str = ""
    #: The folder of the pod's service account; empty outside a pod.
    service_account: str = ""
    #: Files whose change means a new credential: a token, a client certificate and its key.
    files: tuple[str, ...] = ()
    #: The user in the configuration, for display; a token may be more precise.
    user: str = ""
    #: The namespace a user of this context works in.
    namespace: str = "default"
    #: The source of the selection, for display.
    origin: str = ""

    @property
    def needs_configuration(self) -> bool:
        """Whether the (large) kubernetes-asyncio configuration must be loaded to connect."""
        if self.authentication is not Authentication.NONE:
            return True
        return bool(self.kubeconfig) and self.server.startswith("https:")


class _User(msgspec.Struct, kw_only=True, rename="kebab"):
    # The standard names are camel case for some fields and kebab case for others, so those are spelt out.
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    exec: dict[str, object] | None = None
    auth_provider: dict[str, object] | None = None


class _Cluster(msgspec.Struct, kw_only=True):
    server: str = ""


class _Context(msgspec.Struct, kw_only=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedUser(msgspec.Struct, kw_only=True):
    name: str
    user: _User | None = None


class _NamedCluster(msgspec.Struct, kw_only=True):
    name: str
    cluster: _Cluster


class _NamedContext(msgspec.Struct, kw_only=True):
    name: str
    context: _Context


class _Kubeconfig(msgspec.Struct, kw_only=True, rename="kebab"):
    current_context: str | None = None
    clusters: list[_NamedCluster] | None = None
    contexts: list[_NamedContext] | None = None
    users: list[_NamedUser] | None = None


def resolve(
    *,
    server: str | None = None,
    kubeconfig: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    home: Path | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> ClusterAccess:
    """
    The cluster selected by flags and environment.

    Args:
        server: `--server`: a URL, used without credentials.
        kubeconfig: `--kubeconfig`: one file.
        context: `--context`: a context of the kubeconfig in place of its current one.
        environ: the environment, `os.environ` by default.
        home: the user's home folder, by default the real one.
        service_account: where a pod's service account is mounted.

    Raises:
        ConfigurationError: nothing is configured, or the configuration is inconsistent.

    """
    environ = os.environ if environ is None else environ
    if server is not None:
        if kubeconfig is not None or context is not None:
            raise KubeConfigurationError("--server is used without credentials; leave out --kubeconfig and --context")
        return ClusterAccess(server=_base_url(server, "--server"), origin="--server")
    if kubeconfig is not None:
        return _from_files((Path(kubeconfig),), context, "--kubeconfig")
    if environ.get("KUBECONFIG"):
        # A path in the list that does not exist is skipped, as in kubectl, but not all of them.
        paths = tuple(Path(part).expanduser() for part in environ["KUBECONFIG"].split(os.pathsep) if part)
        return _from_files(tuple(path for path in paths if path.exists()) or paths[:1], context, "$KUBECONFIG")
    in_cluster = _in_cluster(environ, service_account)
    if in_cluster is not None and context is None:
        return in_cluster
    default = (home or Path.home()) / ".kube" / "config"
    if default.exists():
        return _from_files((default,), context, str(default))
    raise KubeConfigurationError(
        "no cluster is configured: give --server URL or --kubeconfig FILE, set KUBECONFIG, "
        "or run in a pod with a service account"
    )


def _in_cluster(environ: Mapping[str, str], service_account: Path) -> ClusterAccess | None:
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not (service_account / "token").exists():
        return None
    named = service_account / "namespace"
    return ClusterAccess(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        authentication=Authentication.FILE,
        service_account=str(service_account),
        files=(str(service_account / "token"),),
        user="the pod's service account",
        namespace=(named.read_text().strip() if named.exists() else "") or "default",
        origin="the pod's service account",
    )


def _from_files(paths: Sequence[Path], context: str | None, origin: str) -> ClusterAccess:
    files = [_read(path, origin) for path in paths]
    name = context or next((file.current_context for file in files if file.current_context), None)
    if name is None:
        raise KubeConfigurationError(f"{origin} has no current-context; choose one with --context ({_names(files)})")
    chosen = next((entry.context for file in files for entry in file.contexts or () if entry.name == name), None)
    if chosen is None:
        raise KubeConfigurationError(f"{origin} has no context {name!r}; it has {_names(files)}")
    clusters = (entry.cluster for file in files for entry in file.clusters or () if entry.name == chosen.cluster)
    cluster = next(clusters, None)
    if cluster is None or not cluster.server:
        raise KubeConfigurationError(
            f"{origin}: context {name!r} names the cluster {chosen.cluster!r}, which has no server"
        )
    users = (
        (path, entry.user)
        for path, file in zip(paths, files, strict=True)
        for entry in file.users or ()
        if entry.name == chosen.user
    )
    path, user = next(users, (paths[0], None))
    return ClusterAccess(
        server=_base_url(cluster.server, f"{origin}, cluster {chosen.cluster!r}"),
        authentication=_authentication(user),
        files=_files(user, path.parent),
        user=f"the user {chosen.user!r} of {origin}" if user is not None else "",
        kubeconfig=tuple(str(path) for path in paths),
        context=name,
        namespace=chosen.namespace or "default",
        origin=f"{origin}, context {name!r}",
    )


def _read(path: Path, origin: str) -> _Kubeconfig:
    try:
        return msgspec.convert(yaml.safe_load(path.read_bytes()) or {}, _Kubeconfig)
    except OSError as error:
        raise KubeConfigurationError(f"{origin}: cannot read {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise KubeConfigurationError(f"{origin}: {path} is not YAML: {' '.join(str(error).split())}") from error
    except msgspec.ValidationError as error:
        raise KubeConfigurationError(f"{origin}: {path} is not a kubeconfig: {error}") from error


def _names(files: Sequence[_Kubeconfig]) -> str:
    names = sorted({entry.name for file in files for entry in file.contexts or ()})
    return ", ".join(names) if names else "no contexts"


def _authentication(user: _User | None) -> Authentication:
    if user is None:
        return Authentication.NONE
    if user.exec is not None or user.auth_provider is not None:
        return Authentication.PLUGIN
    # A token in the file takes precedence over a token file, as in client-go's loader of this library.
    if user.token_file and not user.token:
        return Authentication.FILE
    if user.token or user.username or user.client_certificate or user.client_certificate_data:
        return Authentication.STATIC
    return Authentication.NONE


def _files(user: _User | None, folder: Path) -> tuple[str, ...]:
    """The files that hold the credential; relative ones are, as for kubectl, below the kubeconfig's folder."""
    if user is None:
        return ()
    named = [user.client_certificate, user.client_key]
    if user.token_file and not user.token:
        named.append(user.token_file)
    return tuple(str(folder / each) for each in named if each)


def _base_url(server: str, origin: str) -> str:
    parts = urlsplit(server)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise KubeConfigurationError(f"{origin}: {server!r} is not an http:// or https:// URL")
    if parts.query or parts.fragment or parts.username:
        raise KubeConfigurationError(f"{origin}: the server URL must not have credentials, a query or a fragment")
    return server.rstrip("/")
