"""The manifests of the webhook server fit what it serves, reads and writes."""

from pathlib import Path
from typing import Any

import yaml

from headgate.adapters.kubernetes.crds.kinds import KUEUE_KINDS
from headgate.core.admission.jobs import OWNING_KINDS
from headgate.core.admission.webhooks import MUTATING_NAME, VALIDATING_NAME
from headgate.processes.runtime.settings import WebhookSettings
from headgate.processes.webhook.facts import WATCHED

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes" / "webhook"
SETTINGS = WebhookSettings()


def manifests(file: str) -> dict[str, Any]:
    """The documents of a file, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((FOLDER / file).read_text())}


def rights(rules: list[Any], verb: str) -> set[str]:
    return {
        f"{resource}.{group}" if group else resource
        for rule in rules
        if verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def test_the_service_leads_to_the_server() -> None:
    """By the name that is in its certificate, to the port on which it listens."""
    found = manifests("deployment.yaml")
    service, deployment = found["Service"], found["Deployment"]
    assert (service["metadata"]["name"], service["metadata"]["namespace"]) == (SETTINGS.service, SETTINGS.namespace)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports[service["spec"]["ports"][0]["targetPort"]] == SETTINGS.port
    assert deployment["spec"]["replicas"] == 2


def test_it_may_read_what_it_reads_and_no_more() -> None:
    """Its lists, the owners of jobs, the runtimes of TrainJobs, and the objects that name it."""
    rules = manifests("rbac.yaml")["ClusterRole"]["rules"]
    watched = {f"{each.plural}.{each.group}" if each.group else each.plural for each in WATCHED}
    assert rights(rules, "watch") == watched
    owners = {f"{kind.lower()}s.{version.rpartition('/')[0]}" for version, _, kind in map(_split, OWNING_KINDS)}
    runtimes = {f"{kind}.trainer.kubeflow.org" for kind in ("trainingruntimes", "clustertrainingruntimes")}
    assert rights(rules, "get") == owners | runtimes


def _split(kind: str) -> tuple[str, str, str]:
    version, _, name = kind.rpartition("/")
    return version, "", name


def test_it_may_write_its_certificate_and_the_bundles() -> None:
    """One Secret, two configurations, and the definitions that it converts."""
    found = manifests("rbac.yaml")
    secrets = [each for each in found["Role"]["rules"] if "resourceNames" in each]
    assert [each["resourceNames"] for each in secrets] == [[SETTINGS.secret]]
    named = {
        resource: set(rule["resourceNames"])
        for rule in found["ClusterRole"]["rules"]
        if "patch" in rule["verbs"]
        for resource in rule["resources"]
    }
    assert named == {
        "mutatingwebhookconfigurations": {MUTATING_NAME},
        "validatingwebhookconfigurations": {VALIDATING_NAME},
        "customresourcedefinitions": {each.resource for each in KUEUE_KINDS},
    }
