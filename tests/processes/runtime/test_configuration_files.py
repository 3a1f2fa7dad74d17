"""Files that `--config` names: which is which, and what is wrong with one, in a line."""

from pathlib import Path

import pytest

from headgate.events.configuration import FairSharingConfiguration, WaitForPodsReady
from headgate.processes.runtime.configuration_files import (
    KUEUES_DEFAULTS,
    ConfigFiles,
    load_configuration,
    load_scheduler_document,
    sort_files,
)
from headgate.processes.runtime.settings import SettingsError, load

BASE = Path(__file__).parents[3] / "deploy" / "kubernetes" / "base"
KUEUE = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"


def written(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_settings_and_configuration_are_told_apart_in_either_order(tmp_path: Path) -> None:
    """By the apiVersion, which settings do not have; an empty file holds settings."""
    kueue, settings = written(tmp_path / "k.yaml", KUEUE), written(tmp_path / "s.yaml", "cell: lab\n")
    assert sort_files([kueue, settings]) == sort_files([settings, kueue]) == ConfigFiles(settings, kueue)
    assert sort_files([written(tmp_path / "empty.yaml", "")]).configuration is None
    assert sort_files([]) == ConfigFiles(None, None)


def test_a_file_is_read_with_kueues_defaults(tmp_path: Path) -> None:
    """YAML or JSON; what it does not say is as Kueue has it."""
    read = load_configuration(written(tmp_path / "k.yaml", KUEUE + "fairSharing: {}\n"))
    assert read.fair_sharing == FairSharingConfiguration()
    assert read.wait_for_pods_ready == WaitForPodsReady(timeout_ms=1_800_000, recovery_timeout_ms=1_800_000)


def test_no_file_means_what_an_empty_one_does(tmp_path: Path) -> None:
    """Kueue's defaults (v1beta2/defaults.go): pods have half an hour, and system namespaces get no Workloads."""
    assert load_configuration(written(tmp_path / "k.yaml", KUEUE)) == KUEUES_DEFAULTS
    assert KUEUES_DEFAULTS.wait_for_pods_ready == WaitForPodsReady(timeout_ms=1_800_000, recovery_timeout_ms=1_800_000)
    assert KUEUES_DEFAULTS.managed_jobs_namespace_selector is not None


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, "there is no such file"),
        ("a: [", "this is not YAML"),
        ("[]", "must hold a Configuration"),
        (f"{KUEUE}---\n{KUEUE}", "it holds 2 documents"),
        ("cell: lab", "apiVersion: '' is not known: write config.kueue.x-k8s.io/v1beta2"),
        (f"{KUEUE}waitForPodsReady: {{timeout: 5}}", "waitForPodsReady.timeout: 5 is not a duration"),
    ],
)
def test_a_mistake_is_one_line_with_the_file(tmp_path: Path, text: str | None, error: str) -> None:
    """The error at the start names the file, the field, and what to write."""
    file = tmp_path / "k.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load_configuration(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert error in str(caught.value)
    assert "\n" not in str(caught.value)


def test_two_of_a_kind_contradict_each_other(tmp_path: Path) -> None:
    """Neither wins in silence."""
    files = [written(tmp_path / name, "cell: lab\n") for name in ("a.yaml", "b.yaml")]
    with pytest.raises(SettingsError, match="holds settings already"):
        sort_files(files)


def test_what_is_deployed_is_read() -> None:
    """The Configuration of the ConfigMap; the settings beside it name it where it is mounted."""
    assert load_configuration(BASE / "kueue-config.yaml").fair_sharing is None
    assert load(BASE / "headgate.yaml", {}).bridge.configuration == "/etc/headgate/kueue-config.yaml"


def test_the_examples_of_the_deployed_configuration_are_right(tmp_path: Path) -> None:
    """Without the `# ` it takes effect."""
    lines = (BASE / "kueue-config.yaml").read_text().splitlines()
    switched_on = [line.removeprefix("# ") if ":" in line and not line.endswith(".") else line for line in lines[2:]]
    read = load_configuration(written(tmp_path / "k.yaml", "\n".join(switched_on)))
    assert read.fair_sharing == FairSharingConfiguration()
    assert read.admission_fair_sharing is not None
    assert read.object_retention_policies.after_finished_ms == 86_400_000


# --- the kube-scheduler's ------------------------------------------------------------------------------------------

SCHEDULER = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def test_none_and_an_empty_file_place_no_pods(tmp_path: Path) -> None:
    assert load_scheduler_document("none") == {}
    assert load_scheduler_document(written(tmp_path / "s.yaml", "# nothing\n")) == {}


def test_the_document_is_the_file_without_the_keys_of_extenders(tmp_path: Path) -> None:
    """How they are reached over TLS is for the one process that calls them; all else is for the log."""
    text = SCHEDULER + (
        "podMaxBackoffSeconds: 30\n"
        "profiles: [{schedulerName: headgate}]\n"
        "extenders:\n"
        "- urlPrefix: https://extender.example.com\n"
        "  filterVerb: filter\n"
        "  enableHTTPS: true\n"
        "  tlsConfig: {keyData: c2VjcmV0, certData: c2VjcmV0}\n"
    )
    assert load_scheduler_document(written(tmp_path / "s.yaml", text)) == {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "podMaxBackoffSeconds": 30,
        "profiles": [{"schedulerName": "headgate"}],
        "extenders": [{"urlPrefix": "https://extender.example.com", "filterVerb": "filter", "enableHTTPS": True}],
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (SCHEDULER + "podMaxBackof: 3\n", "podMaxBackof"),
        (SCHEDULER + "percentageOfNodesToScore: 120\n", "percentageOfNodesToScore: 120 cannot be: write a number"),
        (SCHEDULER + "profiles: [{plugins: {score: {enabled: [{name: NodeName2}]}}}]\n", "did you mean 'NodeName'"),
        (KUEUE, "apiVersion"),
        ("- a\n", "must hold a KubeSchedulerConfiguration"),
        ("a: [\n", "not YAML"),
    ],
)
def test_a_mistake_names_file_field_and_remedy_in_a_line(tmp_path: Path, text: str, said: str) -> None:
    path = written(tmp_path / "s.yaml", text)
    with pytest.raises(SettingsError) as raised:
        load_scheduler_document(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
