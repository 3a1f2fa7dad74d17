"""
Who we are to the API server: TLS material and the Authorization header, kept fresh.

kubernetes-asyncio knows every way a kubeconfig or a pod can hold a credential, and importing it costs 1.5 seconds and
110 MB in each process. So it is imported in a worker thread, and only when an access needs it: a plain URL, which is
what the embedded cluster has, never does.

A credential is renewed in three ways: token files are read again every minute; an exec plugin that told when its
credential expires is run again a minute before; and any credential is loaded anew after the server refused it with 401.
Renewal never makes a request fail that the old credential could still carry: if the plugin fails, the old one stays,
and the failure is logged and tried again.
"""

import functools
import logging
import os
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import anyio.to_thread

from headgate.adapters.kubernetes.errors import ConfigurationError
from headgate.adapters.kubernetes.kubeconfig import Authentication, ClusterAccess

_LOG: Final = logging.getLogger(__name__)

#: Kubelets rotate projected tokens well before they expire; a minute is what Kubernetes' own clients use.
FILE_REREAD_S: Final = 60.0
#: A plugin's credential is renewed this long before it expires.
EXPIRY_MARGIN_S: Final = 60.0
#: Between two renewals that were asked for by 401, or that failed. A plugin may cost a login; a storm must not.
RENEWAL_INTERVAL_S: Final = 10.0


class Credentials:
    """
    What one transport presents to its server.

    Attributes:
        ssl_context: for TLS connections; None for plain HTTP.
        tls_server_name: the name the server's certificate must carry, if it is not that of the URL.
        proxy: URL of an HTTP proxy, if the kubeconfig names one.
        renewals, renewals_failed: how often the credential was loaded anew, and how often that failed.

    """

    def __init__(
        self,
        *,
        ssl_context: ssl.SSLContext | None = None,
        tls_server_name: str | None = None,
        proxy: str | None = None,
        load: Callable[[], Awaitable["Loaded"]] | None = None,
        reread_s: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.ssl_context = ssl_context
        self.tls_server_name = tls_server_name
        self.proxy = proxy
        self.renewals = 0
        self.renewals_failed = 0
        self._load = load
        self._reread_s = reread_s
        self._clock = clock
        self._lock = anyio.Lock()
        self._header: str | None = None
        self._renew_at: float | None = None
        self._renewed_at = float("-inf")

    async def authorization(self) -> str | None:
        """The value of the Authorization header, renewed first if its time has come. None: send none."""
        if self._renew_at is not None and self._clock() >= self._renew_at:
            await self._renew(lambda: self._renew_at is not None and self._clock() >= self._renew_at)
        return self._header

    async def refused(self, header: str | None) -> bool:
        """The server answered 401 to `header`. Says whether there is another one now, worth a repetition."""
        if self._load is not None and header == self._header:
            await self._renew(lambda: header == self._header and self._clock() - self._renewed_at >= RENEWAL_INTERVAL_S)
        return header != self._header

    async def _renew(self, is_due: Callable[[], bool]) -> None:
        async with self._lock:
            # Many requests find the credential stale at once; the first renews it for all.
            if self._load is None or not is_due():
                return
            self._renewed_at = self._clock()
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

    def adopt(self, loaded: "Loaded") -> None:
        """Use a freshly loaded credential from now on. New TLS connections use its certificate."""
        self._header = loaded.header
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


class Loaded:
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


def _import() -> tuple[Any, Any]:
    # Here and nowhere else; see the module docstring.
    from kubernetes_asyncio import client, config  # noqa: PLC0415, RUF100

    return client, config


async def _load(access: ClusterAccess) -> Loaded:
    client, config = await anyio.to_thread.run_sync(_import)
    # Called on the type, because the class hands out copies of a process-wide default otherwise.
    configuration = type.__call__(client.Configuration)
    if access.service_account:
        config.load_incluster_config(
            configuration,
            try_refresh_token=False,
            token_filename=f"{access.service_account}/token",
            cert_filename=f"{access.service_account}/ca.crt",
        )
        return Loaded(configuration, None)
    loader = await config.load_kube_config(
        config_file=os.pathsep.join(access.kubeconfig), context=access.context, client_configuration=configuration
    )
    return Loaded(configuration, loader)


async def load_credentials(access: ClusterAccess) -> Credentials:
    """
    The credentials for an access.

    Raises:
        ConfigurationError: they cannot be loaded: a file is missing or malformed, or a plugin failed.

    """
    is_tls = access.server.startswith("https:")
    if not access.needs_configuration:
        return Credentials(ssl_context=ssl.create_default_context() if is_tls else None)
    try:
        loaded = await _load(access)
        context = _ssl_context(loaded) if is_tls else None
        credentials = Credentials(
            ssl_context=context,
            tls_server_name=loaded.tls_server_name,
            proxy=loaded.proxy,
            load=functools.partial(_load, access),
            reread_s=FILE_REREAD_S if access.authentication is Authentication.FILE else None,
        )
        credentials.adopt(loaded)
    except Exception as error:
        raise ConfigurationError(
            f"{access.origin}: cannot load the credentials for {access.server}: {error}"
        ) from error
    return credentials


def _ssl_context(loaded: Loaded) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=loaded.ca_file)
    if not loaded.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
