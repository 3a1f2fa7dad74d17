"""`headgate crds` against a simulated cluster behind HTTP, and against none."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from tests.support.cluster_process import running_cluster

from headgate.adapters.kubernetes.crds.kinds import KUEUE_KINDS

COHORTS = "cohorts.kueue.x-k8s.io"


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Path]:
    """A cluster to talk to."""
    with running_cluster(tmp_path) as file:
        yield file


def changed(headgate: Callable, kubeconfig: Path, tmp_path: Path, **labels: str) -> None:
    """Change a definition's labels and its name of the second column, as another installer might have."""
    shown = headgate("get", "crd", COHORTS, "-o", "json", "--kubeconfig", kubeconfig)
    found = json.loads(shown.out)
    found["metadata"] = {"name": COHORTS, "labels": {"app.kubernetes.io/managed-by": "", **labels}}
    found["spec"]["names"]["shortNames"] = ["c"]
    del found["status"]
    file = tmp_path / "crd.yaml"
    file.write_text(yaml.safe_dump(found))
    assert headgate("apply", "-f", file, "--force-conflicts", "--kubeconfig", kubeconfig).code == 0


def test_install_says_what_became_of_each_and_diff_is_silent_where_nothing_differs(
    headgate: Callable, kubeconfig: Path, tmp_path: Path
) -> None:
    """A line each, as data with -o json; the exit codes are those that scripts ask for."""
    answer = headgate("crds", "install", "--kubeconfig", kubeconfig)
    assert answer.code == 0
    assert answer.out.splitlines() == [f"customresourcedefinition/{kind.resource} unchanged" for kind in KUEUE_KINDS]
    assert headgate("crds", "diff", "--kubeconfig", kubeconfig) == (0, "", "")
    changed(headgate, kubeconfig, tmp_path, **{"app.kubernetes.io/managed-by": "headgate"})
    answer = headgate("crds", "diff", "--kubeconfig", kubeconfig)
    assert answer == (1, f'{COHORTS}: names.shortNames: ["co"] / ["c"]\n', "")
    answer = headgate("crds", "install", "--dry-run", "--kubeconfig", kubeconfig)
    assert f"customresourcedefinition/{COHORTS} would be updated: names.shortNames" in answer.out.splitlines()
    answer = headgate("crds", "install", "-o", "json", "--kubeconfig", kubeconfig)
    assert {"name": COHORTS, "state": "updated", "detail": "names.shortNames", "usable": True} in json.loads(answer.out)
    assert headgate("crds", "diff", "--kubeconfig", kubeconfig).code == 0


def test_those_of_others_are_left_alone_until_forced(headgate: Callable, kubeconfig: Path, tmp_path: Path) -> None:
    """Distinguished by their manager."""
    changed(headgate, kubeconfig, tmp_path, **{"app.kubernetes.io/managed-by": "Helm"})
    answer = headgate("crds", "install", "--kubeconfig", kubeconfig)
    assert answer.code == 0
    line = f"customresourcedefinition/{COHORTS} left alone: installed by Helm, serves v1beta2 with every field we use"
    assert line in answer.out.splitlines()
    assert headgate("crds", "diff", "--kubeconfig", kubeconfig).code == 1
    answer = headgate("crds", "install", "--force", "--kubeconfig", kubeconfig)
    assert f"customresourcedefinition/{COHORTS} replaced: was installed by Helm" in answer.out.splitlines()
    assert headgate("crds", "diff", "--kubeconfig", kubeconfig).code == 0


def test_a_cluster_that_does_not_answer_is_one_line_and_says_what_was_done(headgate: Callable, tmp_path: Path) -> None:
    """Exit code 1 for install, 2 for a comparison that could not be made."""
    cluster = {"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    file = tmp_path / "nobody"
    config = {"clusters": [cluster], "users": [{"name": "u"}], "contexts": [context], "current-context": "c"}
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **config}))
    answer = headgate("crds", "install", "--kubeconfig", file)
    assert (answer.code, answer.out, answer.err.count("\n")) == (1, "", 1)
    assert "127.0.0.1:9" in answer.err
    assert "(done: nothing; not done: workloads, clusterqueues, " in answer.err
    answer = headgate("crds", "diff", "--kubeconfig", file)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
