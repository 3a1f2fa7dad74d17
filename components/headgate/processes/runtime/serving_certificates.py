"""
The certificate of a server that the API server calls: shared by its replicas, and trusted by the API server.

`ServingCertificates.keep` runs as long as the server. Each round it reads the Secret, renews its content if that is due
(`headgate.adapters.certificates`), loads the certificate into `context`, which new connections use from then on, and
writes the bundle of authorities into every object that names the server: webhook configurations,
CustomResourceDefinitions with a conversion webhook, and APIServices with the label `CA_FROM`.

Replicas race safely: the Secret is created once and replaced at its resourceVersion, so one of them wins and the others
read what it wrote; bundles are written at the resourceVersion of their object. While the API server does not answer,
the certificate that is loaded stays in use, and `problem` says since when it could not be renewed once it has ended.
"""

import base64
import datetime as dt
import logging
import os
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import anyio
import anyio.to_thread
import msgspec
from aiohttp import web

from headgate.adapters.certificates import StoredCertificates, expires_at, renewed, valid_from
from headgate.adapters.kubernetes.client import KubeClient, PatchType
from headgate.adapters.kubernetes.crds.render import CA_FROM
from headgate.adapters.kubernetes.errors import ApiError, KubernetesError
from headgate.adapters.kubernetes.resources import Resource
from headgate.adapters.kubernetes.server_resources import (
    API_SERVICES,
    CUSTOM_RESOURCE_DEFINITIONS,
    MUTATING_WEBHOOKS,
    SECRETS,
    VALIDATING_WEBHOOKS,
)
from headgate.processes.runtime.http import CannotListenError
from headgate.processes.runtime.settings import VisibilitySettings, WebhookSettings

_LOG: Final = logging.getLogger(__name__)

TRUST_MANAGER: Final = "headgate-certificates"
"""The field manager of the bundles: an object of somebody else's does not become ours by it."""

ROUND_S: Final = 60.0
"""The interval between two rounds: far shorter than the overlap of two authorities."""
RETRY_S: Final = 2.0
TRIES_MAX: Final = 5

TRUSTING: Final = (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS, CUSTOM_RESOURCE_DEFINITIONS, API_SERVICES)
"""The kinds of objects that may name the server."""

_KEYS: Final = {"ca_bundle": "ca.crt", "ca_key": "ca.key", "certificate": "tls.crt", "key": "tls.key"}


class NoCertificateError(Exception):
    """Raised when the files of a certificate cannot be used. The message names them."""


def utc_now() -> dt.datetime:
    """The wall clock."""
    return dt.datetime.now(dt.UTC)


def new_context() -> ssl.SSLContext:
    """A context for a server, without a certificate yet."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate into a context; it holds for new connections. Raises OSError, ssl.SSLError."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder) / "pair.pem"
        with os.fdopen(os.open(pair, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(certificate + key)
        context.load_cert_chain(pair)


class ServingCertificates:
    """The certificate of one server. `context` is for its listener; `ready` is set once it has a certificate."""

    def __init__(
        self,
        client: KubeClient,
        *,
        namespace: str,
        secret: str,
        names: Sequence[str],
        now: Callable[[], dt.datetime] = utc_now,
    ) -> None:
        self.context = new_context()
        self.ready = anyio.Event()
        self.problem: str | None = f"Secret {namespace}/{secret} has not been read yet"
        self.renewals = 0
        self.expires: dt.datetime | None = None
        self._client = client
        self._namespace = namespace
        self._secret = secret
        self._names = tuple(names)
        self._now = now
        self._loaded: StoredCertificates | None = None

    async def keep(self) -> None:
        """Renew, load and make trusted, round after round, until cancelled."""
        while True:
            try:
                await self.round()
            except (KubernetesError, ValueError, OSError) as error:
                self._failed(error)
                await anyio.sleep(RETRY_S)
            else:
                await anyio.sleep(ROUND_S)

    async def round(self) -> None:
        """One round. Raises KubernetesError when the API server refuses or does not answer."""
        stored = await self._read_or_renew()
        if stored != self._loaded:
            await anyio.to_thread.run_sync(load_pair, self.context, stored.certificate, stored.key)
            self._loaded = stored
            self.expires = expires_at(stored.certificate)
            _LOG.info("the certificate of Secret %s is in use until %s", self._where, self.expires.isoformat())
            self.ready.set()
        await self.make_trusted(stored.ca_bundle)
        self.problem = None

    @property
    def _where(self) -> str:
        return f"{self._namespace}/{self._secret}"

    def _failed(self, error: Exception) -> None:
        if self._loaded is None:
            self.problem = f"there is no certificate, because of Secret {self._where}: {error}"
        elif self.expires is not None and self.expires <= self._now():
            self.problem = f"the certificate ended at {self.expires.isoformat()} and cannot be renewed: {error}"
        elif valid_from(self._loaded.certificate) > self._now():
            self.problem = f"the certificate of Secret {self._where} is not valid yet: check the clock of this node"
        else:
            _LOG.warning("the certificate could not be checked: %s", error)
            return
        _LOG.warning("%s", self.problem)

    async def _read_or_renew(self) -> StoredCertificates:
        """The content of the Secret after all that is due has been renewed, by this replica or another."""
        for _ in range(TRIES_MAX):
            found = await self._read()
            stored = _content(found)
            wanted = renewed(stored, self._now(), self._names)
            if stored == wanted:
                return wanted
            try:
                await self._write(found, wanted)
            except ApiError as error:
                if error.status != 409:
                    raise
                continue  # another replica was faster
            self.renewals += 1
            _LOG.info("Secret %s has a new certificate", self._where)
            return wanted
        raise ValueError(f"Secret {self._where} changes all the time: who else writes it?")

    async def _read(self) -> dict[str, Any] | None:
        try:
            raw = await self._client.get(SECRETS, self._secret, self._namespace)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise
        found: dict[str, Any] = msgspec.json.decode(raw)
        return found

    async def _write(self, found: dict[str, Any] | None, wanted: StoredCertificates) -> None:
        data = {key: base64.b64encode(getattr(wanted, field)).decode() for field, key in _KEYS.items()}
        if found is None:
            body = {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": self._secret, "namespace": self._namespace},
                "type": "Opaque",
                "data": data,
            }
            await self._client.create(SECRETS, body, self._namespace)
            return
        await self._client.update(SECRETS, self._secret, {**found, "data": data}, self._namespace)

    async def make_trusted(self, bundle: bytes) -> None:
        """Write the bundle into every object that names the server. Raises KubernetesError."""
        encoded = base64.b64encode(bundle).decode()
        for resource in TRUSTING:
            # The API server writes the status of these objects itself, so one that is new changes soon.
            for _ in range(TRIES_MAX):
                if await self._is_trusted_by(resource, encoded):
                    break

    async def _is_trusted_by(self, resource: Resource, encoded: str) -> bool:
        """Write the bundle into the objects of a resource; False if one has changed meanwhile and does not have it."""
        try:
            page = await self._client.list(resource, label_selector=f"{CA_FROM}={self._secret}")
        except ApiError as error:
            if error.is_unserved:
                return True
            raise
        # Items of a list of the API server's own kinds do not name their kind.
        found = [{"kind": resource.kind, **msgspec.json.decode(raw)} for raw in page.items]
        return all([await self._trust(resource, each, encoded) for each in found])

    async def _trust(self, resource: Resource, found: dict[str, Any], encoded: str) -> bool:
        metadata = found["metadata"]
        writes = [
            {"op": "add", "path": f"{path}/caBundle", "value": encoded}
            for path, config in clients_in(found)
            if config.get("caBundle") != encoded
        ]
        if not writes:
            return True
        is_same = {"op": "test", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]}
        try:
            await self._client.patch(
                resource,
                metadata["name"],
                [is_same, *writes],
                patch_type=PatchType.JSON,
                field_manager=TRUST_MANAGER,
            )
        except ApiError as error:
            if error.status not in (404, 409, 422):
                raise
            _LOG.info("%s %s changed meanwhile: %s", resource.kind, metadata["name"], error)
            return False
        _LOG.info("%s %s trusts Secret %s", resource.kind, metadata["name"], self._where)
        return True


class FileCertificates:
    """
    The certificate of files, such as those that cert-manager writes; reloaded when they change.

    `section` is that of the settings that name the files.
    """

    def __init__(self, certificate: str, key: str, *, section: str) -> None:
        self.context = new_context()
        self.ready = anyio.Event()
        self.problem: str | None = f"{certificate} has not been read yet"
        self.renewals = 0
        self.expires: dt.datetime | None = None
        self._files = (Path(certificate), Path(key))
        self._section = section
        self._loaded: tuple[bytes, bytes] | None = None

    async def keep(self) -> None:
        """Load the files when they change, until cancelled."""
        while True:
            try:
                await anyio.to_thread.run_sync(self.load)
            except NoCertificateError as error:
                if self._loaded is None or (self.expires is not None and self.expires <= utc_now()):
                    self.problem = str(error)
                _LOG.warning("%s", error)
                await anyio.sleep(RETRY_S)
            else:
                await anyio.sleep(ROUND_S / 6)

    def load(self) -> None:
        """Load them if they are others than before. Raises NoCertificateError."""
        try:
            pair = (self._files[0].read_bytes(), self._files[1].read_bytes())
            if pair != self._loaded:
                load_pair(self.context, *pair)
                self.expires = expires_at(pair[0])
                self.renewals += self._loaded is not None
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            names = ", ".join(str(each) for each in self._files)
            fields = f"{self._section}.tls_cert_file, {self._section}.tls_key_file"
            raise NoCertificateError(f"{fields}: {names}: {error}") from error
        self._loaded = pair
        ended = self.expires is not None and self.expires <= utc_now()
        self.problem = f"the certificate {self._files[0]} ended at {self.expires}: renew it" if ended else None
        self.ready.set()


Certificates = ServingCertificates | FileCertificates


def certificates_of(client: KubeClient, settings: WebhookSettings | VisibilitySettings) -> Certificates:
    """The certificate of a server with these settings: of its files if it names some, else of its Secret."""
    if settings.tls_cert_file:
        return FileCertificates(settings.tls_cert_file, settings.tls_key_file, section=_section_of(settings))
    names = names_of(settings)
    return ServingCertificates(client, namespace=settings.namespace, secret=settings.secret, names=names)


def names_of(settings: WebhookSettings | VisibilitySettings) -> tuple[str, ...]:
    """The DNS names of the Service, as the API server calls it."""
    short = f"{settings.service}.{settings.namespace}"
    further = settings.names.split(",") if isinstance(settings, WebhookSettings) else ()
    return (f"{short}.svc", short, f"{short}.svc.cluster.local", *filter(None, map(str.strip, further)))


def _section_of(settings: WebhookSettings | VisibilitySettings) -> str:
    return "webhook" if isinstance(settings, WebhookSettings) else "visibility"


@asynccontextmanager
async def listening(
    app: web.Application, context: ssl.SSLContext, settings: WebhookSettings | VisibilitySettings
) -> AsyncIterator[int]:
    """Serve over TLS while the block runs; the port. Raises CannotListenError."""
    runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=5.0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, settings.host, settings.port, ssl_context=context)
        try:
            await site.start()
        except OSError as error:
            section = _section_of(settings)
            raise CannotListenError(
                f"{section}.host {settings.host}, {section}.port {settings.port}: {error.strerror or error}; "
                "name another port"
            ) from error
        yield int(runner.addresses[0][1])
    finally:
        # Requests that are under way are answered, though the server is being cancelled.
        with anyio.CancelScope(shield=True):
            await runner.cleanup()


def _content(found: dict[str, Any] | None) -> StoredCertificates | None:
    """The content of the Secret; None when there is none, or it is incomplete."""
    data = (found or {}).get("data") or {}
    try:
        return StoredCertificates(**{field: base64.b64decode(data[key]) for field, key in _KEYS.items()})
    except (KeyError, ValueError):
        return None


def clients_in(found: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The parts of an object that say how the API server reaches a server, with their JSON pointers."""
    match found.get("kind"):
        case "CustomResourceDefinition":
            conversion = found["spec"].get("conversion") or {}
            config = (conversion.get("webhook") or {}).get("clientConfig")
            if config is not None:
                yield "/spec/conversion/webhook/clientConfig", config
        case "APIService":
            yield "/spec", found["spec"]
        case _:
            for index, webhook in enumerate(found.get("webhooks") or ()):
                yield f"/webhooks/{index}/clientConfig", webhook["clientConfig"]
