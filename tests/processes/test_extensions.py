"""A kind of job from another package: found by its entry point, watched, read, started and restored like any other."""

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from tests.support.doors import Door
from tests.support.job_kinds import FLAVOR, job_object, pod_template, read, started, stopped

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.resources import watchable
from headgate.adapters.kubernetes.transport import InProcessTransport
from headgate.cli.imported_state import objects_of
from headgate.core.api import job_kinds
from headgate.core.config import frameworks
from headgate.core.config.reader import read_configuration
from headgate.core.jobs.registry import INTEGRATIONS, integration_of
from headgate.core.reading.decoding import watched
from headgate.events.ids import JobKey
from headgate.processes.runtime.extensions import GROUP, ExtensionError, load_integrations
from headgate.testing.cluster import Cluster

EXAMPLE = Path(__file__).parents[2] / "examples" / "job_kind"
FRAMEWORK = "example.com/trainer"
POINT = EntryPoint(FRAMEWORK, "example_trainer:Trainer", GROUP)


@pytest.fixture(autouse=True)
def _as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a test registers is gone after it."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    tables: tuple[dict[Any, Any], ...] = (
        job_kinds._BY_GROUP_KIND,
        job_kinds._BY_RESOURCE,
        job_kinds._BY_GVK,
        frameworks.SUPPORTED,
        INTEGRATIONS,
    )
    before = [dict(table) for table in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        table.clear()
        table.update(kept)
    sys.modules.pop("example_trainer", None)


def test_the_example_of_the_documentation_is_a_kind_like_any_other() -> None:
    """From its entry point to a restored template."""
    assert load_integrations([POINT]) == (FRAMEWORK,)
    document = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    configuration = read_configuration({**document, "integrations": {"frameworks": ["batch/job", FRAMEWORK]}})
    assert "trainers" in watched(configuration)
    assert watchable()["trainers"].path() == "/apis/example.com/v1/trainers"
    assert job_kinds.path_of(JobKey("example.com/Trainer/team-a/train")).endswith("/namespaces/team-a/trainers/train")
    it = integration_of(JobKey("example.com/Trainer/team-a/train"))
    before = job_object("Trainer", {"suspend": True, "size": 3, "leader": pod_template(), "worker": pod_template()})
    job = read(it, before)
    assert it.pod_counts(job) == {"leader": 1, "workers": 3}
    running = started(it, before)
    assert running["spec"]["worker"]["spec"]["nodeSelector"] == FLAVOR
    assert stopped(it, running, before) == before


@pytest.mark.anyio
async def test_an_import_asks_for_its_jobs_as_for_any_others() -> None:
    """At its own path; there are none where its definition is not installed."""
    load_integrations([POINT])
    door = Door(Cluster(lambda: 0))
    kind = job_kinds.kind_of(JobKey("example.com/Trainer/team-a/train"))
    found = [each async for each in objects_of(KubeClient(InProcessTransport(door)), ["team-a"], [kind])]
    assert (found, [each.path for each in door.requests]) == ([], ["/apis/example.com/v1/namespaces/team-a/trainers"])


def test_without_its_package_a_kind_cannot_be_enabled() -> None:
    """The configuration is refused: a cell that does not know the kind would leave its jobs alone."""
    document = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
    with pytest.raises(Exception, match=r"integrations\.frameworks\[0\].*'example.com/trainer'"):
        read_configuration({**document, "integrations": {"frameworks": [FRAMEWORK]}})


@pytest.mark.parametrize(
    ("value", "why"),
    [("no_such_module:Trainer", "ModuleNotFoundError"), ("sys:path", "AttributeError")],
)
def test_a_package_that_cannot_be_used_stops_the_start(value: str, why: str) -> None:
    """One line that names the entry point; a cell must not run without a kind that it is configured for."""
    with pytest.raises(ExtensionError, match=rf"the integration x \({value}\) cannot be used: {why}"):
        load_integrations([EntryPoint("x", value, GROUP)])


def test_a_kind_that_is_there_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two integrations of one kind would disagree about its jobs."""
    load_integrations([POINT])
    module = sys.modules["example_trainer"]
    other = job_kinds.custom("example.com", "v2", "Trainer")
    monkeypatch.setattr(module.Trainer, "kind", other)
    with pytest.raises(ExtensionError, match="has this kind or resource already"):
        load_integrations([POINT])
