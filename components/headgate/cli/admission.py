"""`headgate crds install --admission`: the objects that make the API server default and refuse by Kueue's rules."""

from pathlib import Path

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.errors import ApiError
from headgate.cli.output import FAILED, WRONG_USAGE, CliError, say
from headgate.core.admission.settings import settings_of
from headgate.processes.runtime.configuration_files import KUEUES_DOCUMENT, load_document
from headgate.processes.runtime.settings import SettingsError, WebhookSettings
from headgate.processes.webhook.installing import AdmissionChange, Way, install_admission, objects


async def admit_by(
    client: KubeClient, way: Way | None, *, service: tuple[str, str], file: Path | None, dry_run: bool
) -> None:
    """
    Make a cluster admit objects in this way, and print what was changed; None changes nothing.

    `service` is the namespace and name of the webhook's Service, `file` one of Kueue's Configuration. Raises CliError
    for a wrong file, and KubernetesError.
    """
    if way is None:
        return
    try:
        document = load_document(file).document if file is not None else KUEUES_DOCUMENT
    except SettingsError as error:
        raise CliError(str(error), WRONG_USAGE) from error
    namespace, name = service
    settings, secret = settings_of(document), WebhookSettings().secret
    wanted = objects(way, settings, namespace=namespace, service=name, secret=secret)
    try:
        async for change in install_admission(client, wanted, dry_run=dry_run):
            say(_line(change, dry_run=dry_run))
    except ApiError as error:
        if not error.is_unserved:
            raise
        remedy = "it has no MutatingAdmissionPolicy v1 (Kubernetes 1.36): use --admission webhook"
        raise CliError(f"the API server cannot admit by policies: {remedy}", FAILED) from error


def _line(change: AdmissionChange, *, dry_run: bool) -> str:
    done = "removed" if change.removed else "applied"
    return f"{change.kind.lower()}/{change.name} {f'would be {done}' if dry_run else done}"
