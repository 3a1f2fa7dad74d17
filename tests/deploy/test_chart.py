"""The Helm chart is the Kustomize manifests with values: what it renders is what they do."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.deploy.rendering import CHART, DEPLOY, NAMESPACE, by_key, helm, kustomized, overlay, rendered, with_keys
from tools.chart.__main__ import generated

from headgate.adapters.jetstream.permissions import PROCESSES
from headgate.processes.runtime.settings import load
from headgate.testing.control_plane.packaging import HELM, find_tool

pytestmark = pytest.mark.operators


@pytest.fixture(autouse=True)
def _has_helm() -> None:
    find_tool(HELM)


@pytest.fixture(scope="module")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kustomizations, with keys."""
    return with_keys(tmp_path_factory.mktemp("deploy"))


def settings_of(objects: list[Any], folder: Path) -> Any:
    """The settings that the processes of a rendering read."""
    (config,) = (each for each in objects if each["kind"] == "ConfigMap" and each["metadata"]["name"] == "headgate")
    (folder / "headgate.yaml").write_text(config["data"]["headgate.yaml"])
    return load(folder / "headgate.yaml", environ={})


def of_kind(objects: list[Any], kind: str) -> dict[str, Any]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def pods(objects: list[Any]) -> dict[str, Any]:
    """The pod template of each workload, by name."""
    kinds = ("Deployment", "StatefulSet", "Job")
    return {each["metadata"]["name"]: each["spec"]["template"] for each in objects if each["kind"] in kinds}


def test_the_templates_are_those_of_the_manifests() -> None:
    """They are generated, and nobody has changed one side alone."""
    assert {path.relative_to(CHART): path.read_text() for path in generated()} == {
        path.relative_to(CHART): text for path, text in generated().items()
    }


def test_default_values_render_the_base(kubernetes: Path) -> None:
    """Object by object, without the namespace, which a release cannot hold."""
    assert by_key(rendered()) == by_key(kustomized(kubernetes / "base"))


def test_the_broker_beside_it_renders_the_nats_overlay(kubernetes: Path) -> None:
    """With users, signing keys and policies; the Secrets are made beside the release."""
    users = kubernetes / "nats" / "users" / "users.conf"
    values = ["nats.enabled=true", "keys.enabled=true", "policies.enabled=true"]
    flags = [part for each in values for part in ("--set", each)]
    mine = by_key(rendered(*flags, "--set-file", f"nats.users={users}"))
    wanted = by_key(kustomized(kubernetes / "nats"))
    # Public keys are a ConfigMap of the overlay's that a release leaves to `deploy/secrets`.
    wanted = {key: each for key, each in wanted.items() if key[3] != "public-keys"}
    assert mine.keys() == wanted.keys()
    assert mine == wanted


@pytest.mark.parametrize(
    ("values", "components", "resources"),
    [
        (("webhook.enabled=true",), ("webhook",), ()),
        (
            ("webhook.enabled=true", "webhook.certificates=cert-manager"),
            ("webhook", "webhook-cert-manager"),
            (),
        ),
        (
            (
                "monitoring.serviceMonitor.enabled=true",
                "monitoring.rules.enabled=true",
                "monitoring.dashboards.enabled=true",
            ),
            ("monitoring",),
            (),
        ),
        (("visibility.enabled=true",), (), ("../visibility",)),
    ],
    ids=["webhook", "cert-manager", "monitoring", "visibility"],
)
def test_each_part_renders_its_component(
    kubernetes: Path,
    request: pytest.FixtureRequest,
    values: tuple[str, ...],
    components: tuple[str, ...],
    resources: tuple[str, ...],
) -> None:
    """Each value that adds something adds what the component of its name does."""
    folder = overlay(kubernetes, request.node.callspec.id, *components, resources=("../base", *resources))
    mine = by_key(rendered(*(part for each in values for part in ("--set", each))))
    wanted = by_key(kustomized(folder))
    if "visibility.enabled=true" in values:
        # The chart turns it on in the settings too, which the kustomization leaves to whoever adds it.
        (config,) = (each for key, each in wanted.items() if key[3] == "headgate" and key[1] == "ConfigMap")
        config["data"]["headgate.yaml"]["visibility"] = {"enabled": True}
    assert mine == wanted


def test_another_namespace_is_everywhere(kubernetes: Path, tmp_path: Path) -> None:
    """In names of service accounts, of policies and of certificates; and in the settings."""
    users = kubernetes / "nats" / "users" / "users.conf"
    values = ["nats.enabled", "keys.enabled", "policies.enabled", "webhook.enabled", "visibility.enabled"]
    flags = [part for each in values for part in ("--set", f"{each}=true")]
    objects = rendered(*flags, "--set-file", f"nats.users={users}", namespace="batch", hooks=True)
    assert NAMESPACE not in yaml.safe_dump_all(objects)
    settings = settings_of(objects, tmp_path)
    assert {settings.record.namespace, settings.webhook.namespace, settings.visibility.namespace} == {"batch"}


def test_values_are_where_users_expect_them(tmp_path: Path) -> None:
    """Image, replicas, resources, places, Kueue's configuration, broker, and what is left out."""
    values = {
        "image": {
            "repository": "registry.example/headgate",
            "digest": "sha256:" + "0" * 64,
            "pullPolicy": "IfNotPresent",
        },
        "imagePullSecrets": [{"name": "registry"}],
        "settings": {"cell": "gpu", "lease": {"term_ms": 10_000}},
        "configuration": {"integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]}},
        "frameworks": ["batch/job", "jobset.x-k8s.io/jobset"],
        "processes": {
            "defaults": {"tolerations": [{"key": "system", "operator": "Exists"}], "priorityClassName": ""},
            "scheduler": {
                "replicas": 3,
                "resources": {"limits": {"memory": "16Gi"}},
                "nodeSelector": {"pool": "system"},
            },
        },
        "nats": {"url": "tls://nats.example:4222", "credentials": "creds", "tls": {"secret": "nats-tls"}},
        "networkPolicies": {"enabled": False},
        "podDisruptionBudgets": {"enabled": False},
    }
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    objects = rendered("-f", str(tmp_path / "values.yaml"))
    deployments = of_kind(objects, "Deployment")
    scheduler = deployments["scheduler"]["spec"]
    pod = scheduler["template"]["spec"]
    (container,) = pod["containers"]
    assert (scheduler["replicas"], deployments["binder"]["spec"]["replicas"]) == (3, 2)
    assert container["image"] == f"registry.example/headgate@sha256:{'0' * 64}"
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert container["resources"] == {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "16Gi"}}
    assert (pod["nodeSelector"], pod["tolerations"]) == ({"pool": "system"}, [{"key": "system", "operator": "Exists"}])
    assert "priorityClassName" not in pod
    secrets = {each["secret"]["secretName"] for each in pod["volumes"] if "secret" in each}
    assert secrets == {"nats-user-scheduler", "nats-tls"}
    settings = settings_of(objects, tmp_path)
    assert (settings.cell, settings.lease.term_ms, settings.nats.url) == ("gpu", 10_000, "tls://nats.example:4222")
    assert (settings.nats.creds_file, settings.nats.tls_ca_file) == (
        "/etc/headgate-nats/creds",
        "/etc/headgate-nats-tls/ca.crt",
    )
    assert settings.nats.tls_required
    groups = {
        group
        for each in of_kind(objects, "ClusterRole").values()
        for rule in each["rules"]
        for group in rule["apiGroups"]
    }
    assert "jobset.x-k8s.io" in groups
    assert not groups & {"ray.io", "kubeflow.org", "workload.codeflare.dev"}
    assert not of_kind(objects, "NetworkPolicy")
    assert not of_kind(objects, "PodDisruptionBudget")


def test_the_record_of_the_cell_may_be_kept_whatever_its_name() -> None:
    """The right to the ConfigMap names the cell."""
    roles = of_kind(rendered("--set", "settings.cell=gpu"), "Role")
    named = [each["resourceNames"] for each in roles["headgate-informer-bridge"]["rules"] if "resourceNames" in each]
    assert named == [["headgate-cell-gpu"]]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--set", "images.tag=x"], "images"),
        (["--set", "processes.sheduler.replicas=3"], "sheduler"),
        (["--set", "webhook.certificates=vault"], "cert-manager"),
        (["--set", "nats.enabled=true"], "headgate nats users"),
        (["--set", "crds.admission=webhook"], "webhook.enabled=true"),
    ],
)
def test_a_mistake_is_refused_with_its_name(flags: list[str], words: str) -> None:
    """A misspelt value, one that is none of its choices, and one that needs another."""
    done = helm(*flags)
    assert done.returncode != 0
    assert words in done.stderr


def test_definitions_are_installed_before_the_processes_and_rules_after_them() -> None:
    """The Jobs run the command that the documentation names, with rights of their own that go with them."""
    objects = rendered("--set", "webhook.enabled=true,crds.admission=webhook,crds.conversion=webhook", hooks=True)
    jobs = of_kind(objects, "Job")
    hooks = {name: each["metadata"]["annotations"]["helm.sh/hook"] for name, each in jobs.items()}
    assert hooks == {
        "headgate-definitions": "pre-install,pre-upgrade",
        "headgate-admission": "post-install,post-upgrade",
    }
    arguments = {name: each["spec"]["template"]["spec"]["containers"][0]["args"] for name, each in jobs.items()}
    service = f"--service={NAMESPACE}/headgate-webhook"
    assert arguments == {
        "headgate-definitions": ["crds", "install", service, "--conversion=webhook"],
        "headgate-admission": [
            "crds",
            "install",
            service,
            "--admission=webhook",
            "--configuration=/etc/headgate/kueue-config.yaml",
        ],
    }
    assert not of_kind(rendered("--set", "crds.install=false", hooks=True), "Job")


def test_a_changed_configuration_restarts_the_processes() -> None:
    """As Kustomize does by the hash in the ConfigMap's name."""
    before = pods(rendered())
    after = pods(rendered("--set", "configuration.waitForPodsReady.timeout=10m"))
    assert {name for name in before if before[name] != after[name]} == set(before)


def test_helm_finds_nothing_to_complain_of() -> None:
    """`helm lint --strict`."""
    command = [str(find_tool(HELM)), "lint", "--strict", str(CHART)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_process_has_values_of_its_own() -> None:
    """The schema refuses the name of any other."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(schema["properties"]["processes"]["properties"]) == {"defaults", "webhook", *PROCESSES}
    assert (DEPLOY / "helm" / "headgate" / "values.yaml").is_file()
