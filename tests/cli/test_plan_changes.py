"""`headgate plan --only new`: what the given manifests change in a cell, and nothing else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.test_plan import QUEUES, job, running


def there(*documents: str) -> str:
    """Objects as a cluster gives them: each has a uid."""
    objects = [each for document in documents for each in yaml.safe_load_all(document)]
    for number, each in enumerate(objects):
        each["metadata"]["uid"] = f"00000000-0000-4000-a000-{number:012d}"
    return yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": objects})


@pytest.fixture
def planned(headgate: Callable, tmp_path: Path) -> Callable[..., tuple[int, dict[str, Any]]]:
    """The exit code and the report of a plan of a cluster and new manifests."""

    def plan(cluster: str, *new: str, only: str = "new") -> tuple[int, dict[str, Any]]:
        (tmp_path / "cluster.yaml").write_text(cluster)
        (tmp_path / "new.yaml").write_text("\n---\n".join(new))
        files = ["-f", tmp_path / "cluster.yaml", "-f", tmp_path / "new.yaml"]
        ran = headgate("plan", *files, "--only", only, "-o", "json")
        assert ran.code in (0, 1), ran.err
        return ran.code, json.loads(ran.out)

    return plan


def names(entries: list[dict[str, Any]]) -> set[str]:
    return {(each["job"] or each["workload"]).rpartition("/")[2] for each in entries}


CELL = there(QUEUES, running("runs", 6), job("waits", 5))


def test_a_job_that_fits_beside_the_others_is_all_that_is_shown(planned: Callable) -> None:
    """It is admitted, so the answer is yes, although something else waits."""
    code, report = planned(CELL, job("new", 2))
    assert (code, names(report["admitted"]), report["waiting"], report["preempted"]) == (0, {"new"}, [], [])
    code, report = planned(CELL, job("new", 2), only="all")
    assert (code, names(report["admitted"]), names(report["waiting"])) == (1, {"new", "runs"}, {"waits"})


def test_who_loses_by_it_is_shown_too(planned: Callable) -> None:
    """A job of high priority preempts what runs; that one waits then, and the one that waited anyway is not shown."""
    code, report = planned(CELL, job("urgent", 8, **{"priority-class": "high"}))
    assert code == 1
    assert (names(report["admitted"]), names(report["preempted"])) == ({"urgent"}, {"runs"})
    assert names(report["waiting"]) == {"runs"}


def test_a_change_of_quota_is_planned_by_its_manifest(planned: Callable) -> None:
    """A ClusterQueue of the same name takes the place of the one that is there."""
    (queue,) = [each for each in yaml.safe_load_all(QUEUES) if each["kind"] == "ClusterQueue"]
    queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"] = 11
    code, report = planned(CELL, yaml.safe_dump(queue))
    assert (code, names(report["admitted"]), report["waiting"]) == (0, {"waits"}, [])


def test_nothing_changes_by_what_has_no_effect(planned: Callable) -> None:
    """A priority class that nobody uses."""
    of_nobody = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "WorkloadPriorityClass", "value": 1}
    code, report = planned(CELL, yaml.safe_dump({**of_nobody, "metadata": {"name": "low"}}))
    assert (code, report["admitted"], report["preempted"], report["waiting"]) == (0, [], [], [])
