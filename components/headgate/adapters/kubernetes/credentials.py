"""
The client's credentials for the API server: TLS material and the Authorization header, kept fresh.

kubernetes-asyncio supports every way a kubeconfig or a pod can hold a credential, and importing it loads 850 modules of
models: 40 to 110 MB in each process, and up to 1.5 seconds. Its `config` package, which is all that is used here, needs
none of them, so it is imported alone (2 MB), and only when an access needs it: a plain URL, which is what the embedded
cluster has, never does.

A credential is renewed in three ways: files with a token or a certificate are checked every second and loaded again
when they have changed, and every minute at the latest; an exec plugin that returned an expiry is run again a minute
before; and any credential is loaded anew after the server refused it with 401. Renewal never makes a request fail that
the old credential could still authenticate: if the plugin fails, or a file is gone, the old one stays, and the failure
is logged and the renewal retried.
"""

import base64
import binascii
import functools
import importlib
import importlib.util
import logging
import os
import ssl
import sys
import time
import types
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final

import anyio
import msgspec

from headgate.adapters.kubernetes.errors import KubeConfigurationError
from headgate.adapters.kubernetes.kubeconfig import Authentication, ClusterAccess

_LOG: Final = logging.getLogger(__name__)

#: Kubelets rotate projected tokens well before they expire; a minute is what Kubernetes' own clients use.
FILE_REREAD_S: Final = 60.0
#: The interval between two checks of whether a file has changed.
FILE_LOOK_S: Final = 1.0
#: A plugin's credential is renewed this long before it expires.
EXPIRY_MARGIN_S: Final = 60.0
#: Between two renewals that were triggered by 401, or that failed. A plugin may cost a login; a storm must not.
RENEWAL_INTERVAL_S: Final = 10.0


class KubeCredentials:
    """
    The credentials of one transport.

    Attributes:
        ssl_context: for TLS connections; None for plain HTTP.
        tls_server_name: the name the server's certificate must carry, if it is not that of the URL.
        proxy: URL of an HTTP proxy, if the kubeconfig names one.
        user: the identity of the credential, as far as known; for messages.
        renewals, renewals_failed: how often the credential was loaded anew, and how often that failed.

    """

    def __init__(
        self,
        *,
        ssl_context: ssl.SSLContext | None = None,
        tls_server_name: str | None = None,
        proxy: str | None = None,
        load: Callable[[], Awaitable["LoadedCredential"]] | None = None,
        files: Sequence[Path] = (),
        reread_s: float | None = None,
        user: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`files` are those whose change means a new credential; as they are now, they are known."""
        self.ssl_context = ssl_context
        self.tls_server_name = tls_server_name
        self.proxy = proxy
        self.user = user
        self.renewals = 0
        self.renewals_failed = 0
        self._load = load
        self._reread_s = reread_s
        self._clock = clock
        self._lock = anyio.Lock()
        self._header: str | None = None
        self._renew_at: float | None = None
        self._renewed_at = float("-inf")
        self._configured_user = user
        self._files = tuple(files)
        self._stamps = _stamps(self._files)
        self._looked_at = self._clock()

    async def authorization(self) -> str | None:
        """The value of the Authorization header, renewed first if its time has come. None: send none."""
        if self._is_due():
            await self._renew(self._is_due)
        return self._header

    def _is_due(self) -> bool:
        """Whether its time has come, or a file of it has changed."""
        now = self._clock()
        if self._renew_at is not None and now >= self._renew_at:
            return True
        if not self._files or now < self._looked_at + FILE_LOOK_S:
            return False
        stamps = _stamps(self._files)
        # A missing file is being replaced; the old credential is still valid.
        if stamps == self._stamps or None in stamps:
            self._looked_at = now
            return False
        return True

    async def refused(self, header: str | None) -> bool:
        """The server answered 401 to `header`. Returns whether there is another one now, worth a repetition."""
        if self._load is not None and header == self._header:
            await self._renew(lambda: header == self._header and self._clock() - self._renewed_at >= RENEWAL_INTERVAL_S)
        return header != self._header

    async def _renew(self, is_due: Callable[[], bool]) -> None:
        async with self._lock:
            # Many requests see the stale credential at once; the first renews it for all.
            if self._load is None or not is_due():
                return
            self._renewed_at = self._looked_at = self._clock()
            # Before they are read: later changes are detected.
            self._stamps = _stamps(self._files)
            try:
                self.adopt(await self._load())
            except Exception as error:  # noqa: BLE001  (plugins and providers raise whatever they like)
                self.renewals_failed += 1
                self._renew_at = self._clock() + RENEWAL_INTERVAL_S
                _LOG.warning(
                    "could not renew the credential for the API server; the old one stays in use: %s",
                    error,
                    extra={"retry_s": RENEWAL_INTERVAL_S},
                )
            else:
                self.renewals += 1

    def adopt(self, loaded: "LoadedCredential") -> None:
        """Use a freshly loaded credential from now on. New TLS connections use its certificate."""
        self._header = loaded.header
        self.user = _user_of(loaded.header) or self._configured_user
        self._renewed_at = now = self._clock()
        renewals = []
        if self._reread_s is not None:
            renewals.append(now + self._reread_s)
        if loaded.expires_at is not None:
            # A plugin that hands out credentials which are about to expire is not run on every request.
            renewals.append(max(loaded.expires_at - EXPIRY_MARGIN_S, now + RENEWAL_INTERVAL_S))
        self._renew_at = min(renewals, default=None)
        if self.ssl_context is not None and loaded.cert_file is not None:
            self.ssl_context.load_cert_chain(loaded.cert_file, loaded.key_file)


class LoadedCredential:
    """A credential as kubernetes-asyncio loaded it: header, expiry in unix seconds, TLS files."""

    def __init__(self, configuration: Any, loader: Any | None) -> None:
        # A token file may end in a line feed, which no header may contain.
        self.header: str | None = (configuration.api_key.get("BearerToken") or "").strip() or None
        expiry = getattr(loader, "exec_plugin_expiry", None)
        self.expires_at: float | None = None if expiry is None else expiry.timestamp()
        self.cert_file: str | None = configuration.cert_file
        self.key_file: str | None = configuration.key_file
        self.ca_file: str | None = configuration.ssl_ca_cert
        self.verify: bool = configuration.verify_ssl
        self.tls_server_name: str | None = configuration.tls_server_name
        self.proxy: str | None = configuration.proxy


def _stamps(files: Sequence[Path]) -> tuple[tuple[int, int, int] | None, ...]:
    """A value per file that changes with its content; None for a missing file."""
    found: list[tuple[int, int, int] | None] = []
    for file in files:
        try:
            # Kubelets replace a symbolic link above the file, which changes the inode.
            status = file.stat()
        except OSError:
            found.append(None)
        else:
            found.append((status.st_ino, status.st_mtime_ns, status.st_size))
    return tuple(found)


class _Claims(msgspec.Struct, frozen=True, kw_only=True):
    sub: str = ""


def _user_of(header: str | None) -> str:
    """The subject of a bearer token that is a JWT, as those of service accounts are, or ""; nothing is verified."""
    parts = (header or "").split(".")
    if len(parts) != 3:
        return ""
    try:
        claims = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(claims, type=_Claims).sub
    except (binascii.Error, ValueError, msgspec.DecodeError):
        return ""


_LIBRARY: Final = "kubernetes_asyncio"


@functools.cache
def _import() -> tuple[Any, Any]:
    """`Configuration` and the `config` package of kubernetes-asyncio; without the models beside them, if possible."""
    # Here and nowhere else; see the module docstring.
    found = importlib.util.find_spec(_LIBRARY)
    if found is not None and found.submodule_search_locations and _LIBRARY not in sys.modules:
        try:
            return _import_alone(list(found.submodule_search_locations))
        except (ImportError, AttributeError) as error:
            _LOG.info("kubernetes-asyncio is imported with all its models: %s", error)
    from kubernetes_asyncio import client, config  # noqa: PLC0415, RUF100

    return client.Configuration, config


def _import_alone(folders: list[str]) -> tuple[Any, Any]:
    """Import `config` below packages whose own code, which imports every model, is not run."""
    package, client = types.ModuleType(_LIBRARY), types.ModuleType(f"{_LIBRARY}.client")
    package.__path__ = folders
    client.__path__ = [str(Path(folder, "client")) for folder in folders]
    sys.modules |= {package.__name__: package, client.__name__: client}
    try:
        configuration: Any = importlib.import_module(f"{client.__name__}.configuration").Configuration
        # The loaders name the client itself only in helpers that make one.
        vars(client).update(Configuration=configuration, ApiClient=None)
        return configuration, importlib.import_module(f"{_LIBRARY}.config")
    finally:
        # A later import of the library gets the whole of it.
        for name in [each for each in sys.modules if each == _LIBRARY or each.startswith(f"{_LIBRARY}.")]:
            del sys.modules[name]


async def _load(access: ClusterAccess) -> LoadedCredential:
    made, config = _import()
    # Called on the type, because the class hands out copies of a process-wide default otherwise.
    configuration = type.__call__(made)
    if access.service_account:
        config.load_incluster_config(
            configuration,
            try_refresh_token=False,
            token_filename=f"{access.service_account}/token",
            cert_filename=f"{access.service_account}/ca.crt",
        )
        return LoadedCredential(configuration, None)
    loader = await config.load_kube_config(
        config_file=os.pathsep.join(access.kubeconfig), context=access.context, client_configuration=configuration
    )
    return LoadedCredential(configuration, loader)


async def load_credentials(access: ClusterAccess) -> KubeCredentials:
    """
    The credentials for an access.

    Raises:
        ConfigurationError: they cannot be loaded: a file is missing or malformed, or a plugin failed.

    """
    is_tls = access.server.startswith("https:")
    if not access.needs_configuration:
        return KubeCredentials(ssl_context=ssl.create_default_context() if is_tls else None)
    try:
        # Made before anything is read, so that a file which changes meanwhile is read again.
        credentials = KubeCredentials(
            load=functools.partial(_load, access),
            files=[Path(file) for file in access.files],
            reread_s=FILE_REREAD_S if access.authentication is Authentication.FILE else None,
            user=access.user,
        )
        loaded = await _load(access)
        credentials.ssl_context = _ssl_context(loaded) if is_tls else None
        credentials.tls_server_name = loaded.tls_server_name
        credentials.proxy = loaded.proxy
        credentials.adopt(loaded)
    except Exception as error:
        raise KubeConfigurationError(
            f"{access.origin}: cannot load the credentials for {access.server}: {error}"
        ) from error
    return credentials


def _ssl_context(loaded: LoadedCredential) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=loaded.ca_file)
    if not loaded.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
