"""Every file of `examples/` does what its first comment states. A file that no test here names fails the last one."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.adapters.jetstream import connect
from headgate.adapters.jetstream.embedded import EmbeddedServer
from headgate.adapters.jetstream.feed import open_feed
from headgate.adapters.log import LogEntry
from headgate.core.fold.nodes import levels_of
from headgate.core.state.tables import PENDING
from headgate.core.topology.levels import carries_labels
from headgate.core.views.topology import topology_view
from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit, decode_entry
from headgate.events.facts import ConfigurationObserved
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.processes.runtime.configuration_files import KUEUES_DEFAULTS, KUEUES_DOCUMENT
from headgate.processes.snapshotter.feed import messages_of
from headgate.testing.cluster import BY_PLURAL
from headgate.testing.world.world import MACHINES, World

EXAMPLES = Path(__file__).parents[2] / "examples"
PODS = BY_PLURAL["", "pods"]


def logged(entry: LogEntry) -> LoggedCommit:
    """A commit as the log has it."""
    return decode_entry(entry.seq, entry.subject, entry.payload, entry.time_ms)


def planned(headgate: Callable, name: str, *arguments: object) -> dict[str, Any]:
    """The output of `headgate plan` for an example."""
    answer = headgate("plan", "-f", EXAMPLES / name, *arguments, "-o", "json")
    report: dict[str, Any] = json.loads(answer.out)
    return report


def admitted(report: dict[str, Any]) -> dict[str, int]:
    """Who holds quota at the end, and with how many pods."""
    return {_name(each): each["pod_sets"][0]["count"] for each in report["admitted"]}


def _name(row: dict[str, Any]) -> str:
    name: str = (row.get("job") or row["workload"]).partition("/")[2]
    return name


def waiting(report: dict[str, Any]) -> set[str]:
    """Who waits at the end."""
    return {_name(each) for each in report["waiting"]}


def preempted(report: dict[str, Any]) -> set[str]:
    """Who was preempted on the way."""
    return {_name(each) for each in report["preempted"]}


def test_quota_and_queue(headgate: Callable) -> None:
    """Two of three jobs fit into the quota."""
    report = planned(headgate, "quota-and-queue.yaml")
    assert (admitted(report), waiting(report)) == ({"fits-1": 4, "fits-2": 4}, {"waits"})


def test_cohort_and_borrowing(headgate: Callable) -> None:
    """A job borrows up to the borrowing limit, and one that needs more waits for good."""
    report = planned(headgate, "cohort-and-borrowing.yaml")
    assert (admitted(report), waiting(report)) == ({"big": 12}, {"bigger"})
    assert report["waiting"][0]["reason"] == "ExceedsMaxQuota"


def test_preemption(headgate: Callable) -> None:
    """The workload of lower priority is preempted."""
    report = planned(headgate, "preemption.yaml")
    assert (admitted(report), waiting(report), preempted(report)) == ({"urgent": 8}, {"low"}, {"low"})


def test_fair_sharing(headgate: Callable) -> None:
    """Each team ends with half of what both borrow; without fair sharing none is preempted."""
    report = planned(headgate, "fair-sharing.yaml", "--config", EXAMPLES / "configuration.yaml")
    assert admitted(report) == {"borrower-1": 2, "borrower-2": 2, "share-1": 2, "share-2": 2}
    assert preempted(report) == {"borrower-3", "borrower-4"}
    assert not preempted(planned(headgate, "fair-sharing.yaml"))


def test_admission_checks(headgate: Callable) -> None:
    """The quota is reserved, and the check is waited for."""
    report = planned(headgate, "admission-checks.yaml")
    assert admitted(report) == {"checked": 4}
    assert not report["all_admitted"]
    assert "budget" in headgate("plan", "-f", EXAMPLES / "admission-checks.yaml").out


def test_provisioning(headgate: Callable) -> None:
    """Both get quota; the one that needs GPUs waits for its check, and the other for nothing."""
    report = planned(headgate, "provisioning.yaml")
    assert admitted(report) == {"trains": 4, "prepares": 2}
    assert not report["all_admitted"]
    assert headgate("plan", "-f", EXAMPLES / "provisioning.yaml").out.count("waits for checks: provisioned") == 1


def test_partial_admission(headgate: Callable) -> None:
    """A job that is content with fewer pods gets as many as fit."""
    report = planned(headgate, "partial-admission.yaml")
    assert (admitted(report), waiting(report)) == ({"shrinks": 8}, {"stiff"})


def test_elastic_job(headgate: Callable) -> None:
    """The larger slice replaces the smaller one."""
    report = planned(headgate, "elastic-job.yaml")
    assert (admitted(report), waiting(report)) == ({"grows": 6}, set())


def test_configuration(headgate: Callable) -> None:
    """The configuration file is accepted, and it is the one that switches fair sharing on."""
    file = EXAMPLES / "configuration.yaml"
    assert headgate("plan", "-f", EXAMPLES / "elastic-job.yaml", "--config", file).code == 0
    assert "fairSharing" in file.read_text()


def test_node() -> None:
    """The simulated cluster takes the node, and all pods of the jobs are bound to it."""
    world = World(cell="example")
    for name in ("node.yaml", "quota-and-queue.yaml"):
        world.apply(*yaml.safe_load_all((EXAMPLES / name).read_text()))
    world.run(until_ms=world.clock.now_ms + 300_000)
    assert [each["spec"]["nodeName"] for each in world.cluster.objects(PODS)] == ["node-1"] * 12


def test_nodes_in_racks() -> None:
    """All its nodes belong to the flavor, which has a Topology of racks and hosts."""
    world = World(cell="example")
    world.apply(*yaml.safe_load_all((EXAMPLES / "nodes-in-racks.yaml").read_text()))
    world.run(until_ms=world.clock.now_ms + 10_000)
    state = world.state
    flavor = state.flavors["racked"].spec
    levels = levels_of(state, flavor)
    assert levels == ("example.com/rack", "kubernetes.io/hostname")
    assert len(state.nodes) == 4
    assert all(carries_labels(node, flavor.node_labels, levels) for node in state.nodes.values())
    assert sorted(node.labels["example.com/rack"] for node in state.nodes.values()) == ["rack-a"] * 2 + ["rack-b"] * 2


def test_gangs_in_racks(headgate: Callable) -> None:
    """Two Jobs get a rack each, and the third waits for one although its queue has quota left; a plan says so too."""
    report = planned(headgate, "nodes-in-racks.yaml", "-f", EXAMPLES / "gangs-in-racks.yaml")
    assert (admitted(report), waiting(report)) == ({"ring-1": 4, "ring-2": 4}, {"ring-3"})
    defaults = ConfigurationObserved(configuration=KUEUES_DEFAULTS, document=KUEUES_DOCUMENT)
    machines = {**MACHINES, Producer.INFORMER_BRIDGE: lambda state: InformerBridge(state, new_log=defaults)}
    world = World(cell="example", machines=machines)
    for name in ("nodes-in-racks.yaml", "gangs-in-racks.yaml"):
        world.apply(*yaml.safe_load_all((EXAMPLES / name).read_text()))
    world.run(until_ms=world.clock.now_ms + 500)
    view = topology_view(world.state, "racked")
    inside = {rack.value: {key for host in rack.domains for key in host.workloads} for rack in view.domains}
    jobs = {rack: [key.removeprefix("team-a/job-")[:6] for key in keys] for rack, keys in inside.items()}
    assert (view.resource, view.resources["cpu"].free) == ("cpu", 0)
    assert jobs == {"rack-a": ["ring-1"], "rack-b": ["ring-2"]}
    assert sum(each.stage in PENDING for each in world.state.workloads.values()) == 1


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_follow_script(demo_log: Path) -> None:
    """It names every admission of a log with the time that it took."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = [str(EXAMPLES / "follow.sh"), "--log", str(demo_log)]
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == len({row["workload"] for row in rows}) == 40
    assert all(row["clusterQueue"] and row["waited_s"] >= 0 for row in rows)


@pytest.mark.anyio
async def test_subscriber(tmp_path: Path, demo_entries: list[LogEntry], capsys: pytest.CaptureFixture[str]) -> None:
    """It prints the admissions of a feed, each with its position."""
    spec = importlib.util.spec_from_file_location("subscribe", EXAMPLES / "subscribe.py")
    assert spec is not None
    assert spec.loader is not None
    subscribe = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(subscribe)
    async with EmbeddedServer(tmp_path / "nats") as server:
        async with connect(server.url, name="test") as connection:
            feed = await open_feed(connection, "demo")
            await feed.publish_all([each for entry in demo_entries for each in messages_of("demo", logged(entry))])
        await subscribe.follow(server.url, "demo", lines_max=40)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 40
    assert all(" workload.admitted " in line for line in lines)


def test_every_example_is_tested() -> None:
    """A new file needs a test."""
    tested = Path(__file__).read_text()
    files = {path.name for path in EXAMPLES.iterdir() if path.is_file()} - {"README.md"}
    assert not [name for name in files if f'"{name}"' not in tested]
