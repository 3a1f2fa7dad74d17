"""A change of the configuration's file is a fact in the log, without a restart; a mistake in it changes nothing."""

from pathlib import Path

import anyio
import msgspec
import pytest
import yaml
from tests.support.logs import TestLog
from tests.support.waiting import until

from headgate.adapters.jetstream.health import DependencyHealth
from headgate.core.machine.contract import Append, Changed, Committed, Listed, Settled
from headgate.core.reading.rules import read_otherwise
from headgate.events.base import Producer
from headgate.events.configuration import Configuration
from headgate.events.facts import ConfigurationObserved
from headgate.events.ids import UnixMs
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.machines.informer_bridge.placement_objects import SCHEDULER_CONFIGURATIONS
from headgate.machines.informer_bridge.reconfiguring import refusal
from headgate.processes.informer_bridge.process import PlacementWarning, Warned, report
from headgate.processes.informer_bridge.reloading import kueues_file, placements_file
from headgate.processes.runtime.configuration_files import load_document
from headgate.processes.runtime.process_status import Status

HEAD = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}
TIMEOUT = {"waitForPodsReady": {"timeout": "7m"}}


class Reloaded:
    """A bridge on a log of its own, and its configuration's file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.write()
        self.log = TestLog()
        self.status = Status(process="informer-bridge", cell="main", holder="h", health=DependencyHealth())
        loaded = load_document(path)
        self.bridge = InformerBridge(self.log.state, loaded)
        self.file = kueues_file(str(path), self.status, self._refusal)
        self.settle()

    def _refusal(self, configuration: Configuration) -> str:
        return refusal(configuration, self.bridge.at_start)

    def write(self, **fields: object) -> None:
        self.path.write_text(yaml.safe_dump({**HEAD, **fields}))

    def settle(self) -> list[Configuration]:
        """The configurations that the bridge appends."""
        found = []
        for command in self.bridge.decide(Settled(self.log.now_ms)):
            if isinstance(command, Append):
                logged = self.log.append(Producer.INFORMER_BRIDGE, *command.events)
                self.bridge.decide(Committed(logged))
                found += [each.configuration for each in command.events if isinstance(each, ConfigurationObserved)]
        return found

    def read(self) -> Changed | None:
        changed = self.file.changed()
        if changed is not None:
            assert self.bridge.decide(changed) == []
        return changed

    def said(self) -> str:
        """All notices."""
        return "".join(self.notices)

    @property
    def notices(self) -> tuple[str, ...]:
        return self.status.report().notices


@pytest.fixture
def reloaded(tmp_path: Path) -> Reloaded:
    return Reloaded(tmp_path / "kueue.yaml")


def test_a_change_is_a_fact_at_a_position_and_said_once(reloaded: Reloaded) -> None:
    """Read again without a change, the file says nothing new."""
    assert reloaded.read() is None
    reloaded.write(**TIMEOUT)
    assert reloaded.read() is not None
    (appended,) = reloaded.settle()
    assert appended.wait_for_pods_ready is not None
    assert appended.wait_for_pods_ready.timeout_ms == 7 * 60_000
    assert reloaded.log.state.configuration == appended
    assert (reloaded.read(), reloaded.settle()) == (None, [])


@pytest.mark.parametrize(
    "text", ["waitForPodsReady: [", "kind: Configuration\n", None], ids=["YAML", "version", "gone"]
)
def test_a_file_with_a_mistake_changes_nothing_and_is_reported(reloaded: Reloaded, text: str | None) -> None:
    """Until it is corrected."""
    if text is None:
        reloaded.path.unlink()
    else:
        reloaded.path.write_text(text)
    assert (reloaded.read(), reloaded.settle()) == (None, [])
    assert "the former one stays" in reloaded.notices[0]
    reloaded.write(**TIMEOUT)
    assert reloaded.read() is not None
    assert reloaded.notices == ()


def test_a_gate_that_headgate_does_not_have_is_refused_with_the_reason(reloaded: Reloaded) -> None:
    """The name of the field is in the report."""
    reloaded.write(featureGates={"SchedulerLibraryIntegration": True})
    assert reloaded.read() is None
    assert "featureGates.SchedulerLibraryIntegration" in reloaded.notices[0]


def test_other_kinds_of_jobs_wait_for_the_next_term(reloaded: Reloaded) -> None:
    """What is watched is settled when a term begins; the machine takes nothing else either."""
    reloaded.write(integrations={"frameworks": ["batch/job", "jobset.x-k8s.io/jobset"]})
    assert reloaded.read() is None
    assert "restart the informer bridge" in reloaded.notices[0]
    assert reloaded.settle() == []
    assert InformerBridge(TestLog().state, reloaded.file.at_start()).resources != reloaded.bridge.resources


@pytest.mark.parametrize("frameworks", [["batch/job", "pod"], ["batch/job", "deployment"]], ids=["pods", "Deployments"])
def test_pods_as_jobs_wait_for_the_next_term_too(reloaded: Reloaded, frameworks: list[str]) -> None:
    """They are watched in any case, but which of them are jobs is settled when a term begins."""
    reloaded.write(integrations={"frameworks": frameworks})
    assert reloaded.read() is None
    assert "restart the informer bridge" in reloaded.notices[0]
    assert reloaded.settle() == []


def test_the_order_of_frameworks_needs_no_restart(tmp_path: Path) -> None:
    """Nor does one that is named twice."""
    path = tmp_path / "kueue.yaml"
    path.write_text(yaml.safe_dump({**HEAD, "integrations": {"frameworks": ["pod", "batch/job"]}}))
    at_start = load_document(path).configuration
    path.write_text(yaml.safe_dump({**HEAD, "integrations": {"frameworks": ["batch/job", "pod", "pod"]}}))
    assert refusal(load_document(path).configuration, at_start) == ""


def test_a_new_term_takes_back_what_the_former_one_said_of_the_file(reloaded: Reloaded) -> None:
    """It begins with what the file holds; a file with a mistake is reported by it anew."""
    reloaded.write(integrations={"frameworks": ["batch/job", "pod"]})
    assert reloaded.read() is None
    assert reloaded.said() != ""
    reloaded.file.at_start()
    assert reloaded.said() == ""
    reloaded.path.write_text("waitForPodsReady: [")
    reloaded.file.at_start()
    assert "the former one stays" in reloaded.said()
    reloaded.write()
    assert reloaded.read() is not None
    assert reloaded.said() == ""


@pytest.mark.anyio
async def test_a_change_of_what_is_read_has_it_listed_again(
    reloaded: Reloaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the machine was shown the configuration, so that the list is read by it; another change lists nothing."""
    monkeypatch.setattr("headgate.processes.informer_bridge.reloading.RELOAD_S", 0.001)
    done: list[object] = []

    async def offer(stimulus: object) -> None:
        done.append(type(stimulus).__name__)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            reloaded.file.follow,
            offer,
            lambda old, new: done.append(read_otherwise(old.configuration, new.configuration)),
        )
        for fields in (TIMEOUT, {"integrations": {"labelKeysToCopy": ["team"]}}, {"manageJobsWithoutQueueName": True}):
            before = len(done)
            reloaded.write(**fields)
            await until(lambda before=before: len(done) == before + 2)  # type: ignore[misc]
        tasks.cancel_scope.cancel()
    assert done == ["Changed", (), "Changed", ("pods",), "Changed", ("jobs", "pods")]


@pytest.mark.anyio
async def test_a_bridge_that_leads_no_longer_says_nothing_of_the_file(reloaded: Reloaded) -> None:
    """Which one is in effect is the business of the leader."""
    reloaded.write(integrations={"frameworks": ["batch/job", "pod"]})
    reloaded.read()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reloaded.file.follow, _nothing, _unlisted)
        await anyio.wait_all_tasks_blocked()
        assert reloaded.notices
        tasks.cancel_scope.cancel()
    assert reloaded.notices == ()


async def _nothing(_: object) -> None:
    """Takes no stimulus."""


def _unlisted(_: object, __: object) -> None:
    """Lists nothing."""


# --- by which pods are placed --------------------------------------------------------------------------------------

SCHEDULER = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "headgate"}],
}


def test_a_changed_file_by_which_pods_are_placed_takes_effect_and_a_mistake_changes_nothing(tmp_path: Path) -> None:
    """An emptied file turns placement off."""
    path = tmp_path / "scheduler.yaml"
    path.write_text(yaml.safe_dump(SCHEDULER))
    status = Status(process="informer-bridge", cell="main", holder="h", health=DependencyHealth())
    file = placements_file(str(path), status)
    assert (file.at_start(), file.changed()) == (SCHEDULER, None)
    path.write_text(yaml.safe_dump({**SCHEDULER, "parallelism": 0}))
    assert file.changed() is None
    (notice,) = status.report().notices
    assert "the changed KubeSchedulerConfiguration is not in effect, the former one stays" in notice
    assert "parallelism: 0 cannot be" in notice
    assert file.current == SCHEDULER
    path.write_text("")
    assert file.changed() == Changed(SCHEDULER_CONFIGURATIONS, "MODIFIED", b"{}", "")
    assert (file.current, status.report().notices) == ({}, ())


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"apiVersion": "kubescheduler.config.k8s.io/v1beta3"}, "kubescheduler.config.k8s.io/v1"),
        ({"profiles": [{"plugins": {"filter": {"enabled": [{"name": "OfAnotherPackage"}]}}}]}, "OfAnotherPackage"),
    ],
)
def test_a_configuration_of_the_log_that_cannot_be_used_is_a_notice_of_readyz(
    changed: dict[str, object], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Of another version, or by plugins that are not installed; once, until one that can be used is in effect."""
    status = Status(process="informer-bridge", cell="main", holder="h", health=DependencyHealth())
    warning, document = PlacementWarning(status), {**SCHEDULER, **changed}
    for _ in range(2):
        warning.check(document)
    (notice,) = status.report().notices
    assert notice.startswith("no pods are placed: this version cannot use the KubeSchedulerConfiguration in the log")
    assert why in notice
    assert notice.endswith("Start the informer bridge with --kube-scheduler-config FILE, a corrected file")
    assert caplog.messages == [notice]
    for usable in (SCHEDULER, {}):
        warning.check(document)
        warning.check(usable)
        assert status.report().notices == ()


def test_a_pod_without_a_profile_is_reported_once_with_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    """However many there are, and in however many terms."""
    pods = [
        {
            "metadata": {"name": name, "namespace": "a", "uid": name},
            "spec": {"schedulerName": "headgate", "containers": [{"name": "c"}]},
        }
        for name in ("p", "q")
    ]
    warned = Warned()
    for _ in range(2):
        machine = InformerBridge(TestLog().state)
        machine.decide(Listed("pods", tuple(msgspec.json.encode(each) for each in pods), "1"))
        machine.decide(Settled(UnixMs(0)))
        report(warned, machine)
    (record,) = caplog.records
    assert "the pod a/q names the scheduler headgate and stays pending: Headgate places no pods" in record.getMessage()
    assert "--kube-scheduler-config FILE" in record.getMessage()
