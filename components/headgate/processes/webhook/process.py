"""
The webhook server as a process: from settings to an exit code.

It serves /healthz, /readyz and /metrics first, without TLS, so that a pod that waits for the API server can say so;
then it follows the facts, keeps the certificate, and answers reviews. It is ready when it has both.
"""

import logging
import signal
from contextlib import AsyncExitStack
from typing import Final

import anyio

from headgate.adapters.jetstream import DependencyHealth
from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.errors import KubeConfigurationError
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.kubeconfig import resolve
from headgate.adapters.telemetry import Metrics, configure_logs
from headgate.core.admission.settings import AdmissionSettings, settings_of
from headgate.processes.entry import Exit, backend_options, default_holder
from headgate.processes.runtime.configuration_files import KUEUES_DOCUMENT, load_document
from headgate.processes.runtime.http import CannotListenError, application, serving
from headgate.processes.runtime.process_status import Phase, Status
from headgate.processes.runtime.serving_certificates import Certificates, certificates_of, listening
from headgate.processes.runtime.settings import Settings
from headgate.processes.webhook.admission import AdmissionHandlers, InformerFacts
from headgate.processes.webhook.facts import Informer
from headgate.processes.webhook.handlers import HANDLERS
from headgate.processes.webhook.server import Reviews

_LOG: Final = logging.getLogger(__name__)

NAME: Final = "webhook"
POLL_S: Final = 0.5


def run(settings: Settings) -> int:
    """Run the server until it is stopped; its exit code. Raises SettingsError for a Configuration that is wrong."""
    file = settings.bridge.configuration
    admission = settings_of(load_document(file).document if file else KUEUES_DOCUMENT)
    holder = settings.holder or default_holder()
    configure_logs(form=settings.log.format, level=settings.log.level, process=NAME, cell=settings.cell, holder=holder)
    return anyio.run(_main, WebhookServer(settings, holder, admission), backend_options=backend_options())


async def _main(server: "WebhookServer") -> int:
    code = Exit.OK
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_on_signal, tasks.cancel_scope)
            await server.run()
    except* (KubeConfigurationError, CannotListenError) as group:
        _LOG.critical("stopped: %s", group.exceptions[0])
        code = Exit.CONFIGURATION
    _LOG.info("stopped")
    return code


async def _on_signal(scope: anyio.CancelScope) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for number in signals:
            _LOG.info("%s", signal.Signals(number).name)
            scope.cancel()
            return


class WebhookServer:
    """One replica. `run` serves until cancelled; `serving` is set, with `port`, when it listens."""

    def __init__(self, settings: Settings, holder: str, admission: AdmissionSettings) -> None:
        self.settings = settings
        self._admission = admission
        self.status = Status(process=NAME, cell=settings.cell, holder=holder, health=DependencyHealth())
        self.status.detail = "waiting for the API server"
        self.serving = anyio.Event()
        self.port = 0
        self.url = ""
        self.certificates: Certificates

    async def run(self) -> None:
        """Serve. Raises KubeConfigurationError, CannotListenError."""
        settings = self.settings
        async with AsyncExitStack() as stack:
            metrics = Metrics(**{"service.name": f"headgate-{NAME}", "service.namespace": settings.cell})
            stack.callback(metrics.close)
            app = application(self.status, metrics.render)
            self.url = await stack.enter_async_context(serving(app, settings.http, what=NAME))
            kubernetes = settings.kubernetes
            access = resolve(server=kubernetes.server, kubeconfig=kubernetes.kubeconfig, context=kubernetes.context)
            client = KubeClient(await stack.enter_async_context(open_transport(access)))
            certificates = self.certificates = certificates_of(client, settings.webhook)
            informer = Informer(client)
            measure(metrics, certificates)
            tasks = await stack.enter_async_context(anyio.create_task_group())
            tasks.start_soon(informer.run)
            tasks.start_soon(certificates.keep)
            tasks.start_soon(self._watch, certificates, informer)
            await certificates.ready.wait()
            admission = AdmissionHandlers(self._admission, InformerFacts(informer), client)
            reviews = Reviews({**admission.handlers(), **HANDLERS}, metrics, lambda: informer.problem)
            listener = listening(reviews.application(), certificates.context, settings.webhook)
            self.port = await stack.enter_async_context(listener)
            self.status.detail = ""
            self.status.phase = Phase.LEADING
            _LOG.info("webhooks are served on port %d", self.port)
            self.serving.set()
            await anyio.sleep_forever()

    async def _watch(self, certificates: Certificates, informer: Informer) -> None:
        """Keep the problems of /readyz up to date."""
        while True:
            self.status.problem("certificate", certificates.problem)
            self.status.problem("facts", informer.problem)
            await anyio.sleep(POLL_S)


def measure(metrics: Metrics, certificates: Certificates) -> None:
    """Register the metrics of the certificate."""
    metrics.gauge(
        "headgate_webhook_certificate_expiry_timestamp_seconds",
        "When the certificate in use ends, in seconds since 1970.",
        lambda: [] if certificates.expires is None else [(certificates.expires.timestamp(), {})],
    )
    metrics.counter(
        "headgate_webhook_certificate_renewals_total",
        "Certificates that this replica has renewed.",
        lambda: certificates.renewals,
    )
