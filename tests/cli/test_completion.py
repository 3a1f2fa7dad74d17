"""Completion in the shell knows the names of the cluster in use, and is silent without one."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from tests.support.cluster_process import running_cluster

from headgate.cli.demo_objects import cluster_objects, job_objects
from headgate.cli.main import run


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as file:
        yield file


@pytest.fixture
def queues(headgate: Callable, kubeconfig: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster with queues and two jobs, named by KUBECONFIG."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    file = tmp_path / "all.yaml"
    file.write_text(yaml.safe_dump_all([*cluster_objects(), *job_objects(2, seed=1)]))
    assert headgate("apply", "-f", file).code == 0


@pytest.fixture
def completed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[str]]:
    """What the shell is offered for the last word of a line; a space at the end begins a new one."""

    def complete(line: str) -> list[str]:
        words = f"headgate {line}"
        monkeypatch.setenv("_HEADGATE_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
        capsys.readouterr()
        with pytest.raises(SystemExit):
            run([])
        monkeypatch.delenv("_HEADGATE_COMPLETE")
        out, err = capsys.readouterr()
        assert err == ""
        return out.split()

    return complete


@pytest.mark.usefixtures("queues")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("get clusterq", ["clusterqueues"]),
        ("get cq v", ["vision"]),
        ("delete clusterqueue vision ", ["genomics", "speech"]),
        ("queue status --pending v", ["vision"]),
        ("get jobs -n kube-s", ["kube-system"]),
        ("get clusterqueues nothing-like-it", []),
    ],
)
def test_names_are_those_of_the_cluster(completed: Callable, line: str, offered: list[str]) -> None:
    """Of kinds by any of their names, of objects that are not in the line yet, of namespaces."""
    assert set(offered) <= set(completed(line))
    assert all(each.startswith(line.split(" ")[-1]) for each in completed(line))
    assert bool(offered) == bool(completed(line))


@pytest.mark.usefixtures("queues")
def test_a_workload_is_completed_with_its_namespace_or_within_one(completed: Callable) -> None:
    """As `headgate explain` takes it."""
    namespace, _, name = completed("explain ")[0].partition("/")
    assert name
    assert name in completed(f"explain -n {namespace} {name[:3]}")


@pytest.mark.usefixtures("queues")
def test_pods_are_completed_like_workloads(headgate: Callable, completed: Callable, tmp_path: Path) -> None:
    """Beside them, and alone after `pod/`."""
    container = {"name": "c", "image": "i"}
    manifest = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "lone"}, "spec": {"containers": [container]}}
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(manifest))
    assert headgate("apply", "-f", tmp_path / "pod.yaml").code == 0
    assert completed("explain default/lo") == ["default/lone"]
    assert completed("explain -n default lo") == ["lone"]
    assert completed("explain pod/default/lo") == ["pod/default/lone"]
    assert "pod/default/lone" in completed("explain pod/")
    assert all(each.startswith("pod/") for each in completed("explain pod/"))


def test_nothing_is_offered_or_printed_where_no_cluster_answers(
    completed: Callable, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A kubeconfig that does not exist, and one whose server is gone."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "missing"))
    assert completed("get jobs ") == []
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "c"}}
    config = {
        "clusters": [cluster],
        "contexts": [context],
        "users": [{"name": "c", "user": {}}],
        "current-context": "c",
    }
    (tmp_path / "gone").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **config}))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "gone"))
    assert completed("explain ") == []
