"""The kube-scheduler's metrics follow from the log: attempts, their number for each pod, victims, who refuses pods."""

from tests.machines.scheduler.test_placement import fails
from tests.support.placements import CONFIGURATION, PlacementCell, node, pod

from headgate.adapters.jetstream.health import DependencyHealth
from headgate.adapters.telemetry.metrics import Metrics
from headgate.core import fold
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.plugin import PluginFactory
from headgate.core.placement.framework.status import PluginStatus
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.events.ids import UnixMs
from headgate.machines.scheduler.decide import Scheduler
from headgate.processes.runtime.process_status import Phase, Status
from headgate.processes.scheduler.process import PlacementReports
from headgate.processes.telemetry.observer import Observing
from headgate.processes.telemetry.scheduler_metrics import SchedulerMetrics


def served(cell: PlacementCell) -> list[str]:
    """What is served of a log, without what explains it."""
    metrics, state = Metrics(), fold.new_state("main")
    scheduler = SchedulerMetrics(metrics)
    scheduler.serve_gauges(lambda: state)
    for logged in cell.log.commits:
        fold.apply(state, logged)
        scheduler.folded(state, logged)
    return [line for line in metrics.render().splitlines() if line.startswith("scheduler_")]


def attempts(cell: PlacementCell) -> dict[str, str]:
    """The attempts by result."""
    lines = (line for line in served(cell) if line.startswith("scheduler_schedule_attempts_total"))
    return {line.split('result="')[1].split('"')[0]: line.split()[-1] for line in lines}


def test_attempts_are_counted_by_result_and_profile() -> None:
    """A pod counts as scheduled when it is bound; a refused binding is an error."""
    cell = PlacementCell(node("n1", cpu="1"), pod("a"))
    cell.decide()
    cell.refuse("team/a")
    cell.run()
    cell.sleep()
    assert attempts(cell) == {"scheduled": "1", "error": "1"}
    assert all('profile="headgate"' in line for line in served(cell) if "_attempts_total" in line)
    assert "scheduler_pod_scheduling_attempts_sum 2" in served(cell)


def test_attempts_that_changed_nothing_are_counted_when_the_next_one_is_recorded() -> None:
    """With the result that they had: none is lost."""
    cell = PlacementCell()
    fails(cell, times=9)
    assert attempts(cell) == {"unschedulable": "5"}
    cell.apply(node("n0", cpu="9"))
    cell.log.now_ms = UnixMs(cell.log.now_ms + 60_000)
    cell.run()
    assert attempts(cell) == {"unschedulable": "9", "scheduled": "1"}
    assert "scheduler_pod_scheduling_attempts_sum 10" in served(cell)


def test_victims_are_counted_for_each_preemption() -> None:
    """Here two pods go for one."""
    cell = PlacementCell(node("n1", cpu="2"), pod("x", priority=1), pod("y", priority=1))
    cell.run()
    cell.apply(pod("high", cpu="2", priority=9))
    cell.run()
    assert cell.nodes() == {"team/high": "n1"}
    found = served(cell)
    assert "scheduler_preemption_victims_sum 2" in found
    assert "scheduler_preemption_victims_count 1" in found


def test_pods_without_a_node_are_shown_by_who_refuses_them() -> None:
    """What waits now: a pod that got its node is shown no more."""
    cell = PlacementCell(node("n1", cpu="1"), pod("a", cpu="2"), pod("b", cpu="3", nodeSelector={"no": "such"}))
    cell.run()
    shown = [line for line in served(cell) if line.startswith("scheduler_unschedulable_pods")]
    assert shown == [
        'scheduler_unschedulable_pods{plugin="NodeAffinity",profile="headgate"} 1',
        'scheduler_unschedulable_pods{plugin="NodeResourcesFit",profile="headgate"} 1',
    ]
    cell.apply(node("n2", cpu="2"))
    cell.run()
    assert cell.nodes()["team/a"] == "n2"
    assert [line for line in served(cell) if "NodeResourcesFit" in line] == []


# --- what the queue alone knows ------------------------------------------------------------------------------------


class Broken:
    """A plugin whose hook fails."""

    name = "Broken"

    def pre_enqueue(self, cycle: PlacementCycle) -> PluginStatus:
        raise ValueError(f"no answer about {cycle.pod.name}")


def test_the_scheduler_serves_its_queue_and_who_has_failed_while_it_leads() -> None:
    """Nothing of it is in the log; a plugin that fails is named by /readyz, too."""
    profile = {"schedulerName": "headgate", "plugins": {"preEnqueue": {"enabled": [{"name": "Broken"}]}}}
    cell = PlacementCell(node("n1"), pod("a"), configuration={**CONFIGURATION, "profiles": [profile]})
    cell.machine = Scheduler(cell.state, {**REGISTRY, "Broken": PluginFactory("Broken", lambda _: Broken())})
    status = Status(process="scheduler", cell="main", holder="h", health=DependencyHealth())
    reports, metrics = PlacementReports(status), Metrics()
    Observing(status, metrics, None, kueue=False)

    def shown() -> list[str]:
        names = ("scheduler_pending_pods", "headgate_placement_plugin_failed")
        return [line for line in metrics.render().splitlines() if line.startswith(names)]

    assert shown() == []
    cell.run()
    reports.note(cell.machine)
    assert shown() == []
    status.phase = Phase.LEADING
    reports.note(cell.machine)
    assert shown() == [
        'headgate_placement_plugin_failed{plugin="Broken",extension_point="PreEnqueue"} 1',
        'scheduler_pending_pods{queue="active"} 0',
        'scheduler_pending_pods{queue="backoff"} 0',
        'scheduler_pending_pods{queue="unschedulable"} 0',
        'scheduler_pending_pods{queue="gated"} 1',
    ]
    (notice,) = status.report().notices
    assert notice.startswith("Broken: running PreEnqueue plugin")
    assert notice.endswith("no answer about a")
