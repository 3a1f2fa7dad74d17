"""The openb trace format: what it becomes, and one clear error for each way it can be wrong."""

from pathlib import Path

import pytest

from headgate.testing.traces import openb
from headgate.testing.traces.report import picture
from headgate.testing.traces.run import run_trace

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,32000,65536,0,\nn1,32000,65536,2,T4\n"
PODS = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    "p0,1000,1024,1,500,T4,LS,Succeeded,0,100,10\n"
    "p1,1000,1024,2,1000,,BE,Failed,5,60,5\n"
    "p2,2000,1024,0,0,,BE,Pending,7,50,\n"
)


def trace(tmp_path: Path, nodes: str = NODES, pods: str = PODS) -> openb.Trace:
    (tmp_path / "nodes.csv").write_text(nodes)
    (tmp_path / "pods.csv").write_text(pods)
    return openb.read_trace(tmp_path / "nodes.csv", tmp_path / "pods.csv")


def test_a_task_runs_from_its_start_or_from_its_creation(tmp_path: Path) -> None:
    """Run time is deletion less start; a task that never started in the trace runs from its creation."""
    assert [task.run_s for task in trace(tmp_path).tasks] == [90, 55, 43]


def test_queues_share_the_whole_cluster(tmp_path: Path) -> None:
    """The nominal quotas of all queues sum up to the capacity of the nodes, per model and resource."""
    read = trace(tmp_path)
    sums: dict[tuple[str, str], int] = {}
    for each in openb.cluster_objects(read):
        if each["kind"] == "ClusterQueue":
            for flavor in each["spec"]["resourceGroups"][0]["flavors"]:
                for resource in flavor["resources"]:
                    key = flavor["name"], resource["name"]
                    sums[key] = sums.get(key, 0) + int(resource["nominalQuota"].rstrip("mMi"))
    assert sums["t4", openb.GPU] == 2000
    assert sums["none", "cpu"] == 32000
    assert sums["t4", "memory"] == 65536


@pytest.mark.parametrize(
    ("nodes", "pods", "message"),
    [
        (NODES.replace("gpu,model", "gpu"), PODS, r"nodes\.csv: the header lacks model: expected sn,cpu_milli"),
        (NODES.replace("32000", "many", 1), PODS, r"nodes\.csv:2: cpu_milli is 'many': expected a whole number"),
        (NODES, PODS.replace("1000,1024", "-1,1024", 1), r"pods\.csv:2: cpu_milli is -1: expected a number from 0 on"),
        (NODES, PODS + "p0,1,1,0,0,,BE,Failed,1,2,1\n", r"pods\.csv: task p0 appears twice"),
        (NODES, PODS + "p9,1\n", r"pods\.csv:5: memory_mib is missing: the line has too few columns"),
    ],
)
def test_a_bad_trace_is_one_error_that_names_file_line_and_column(
    tmp_path: Path, nodes: str, pods: str, message: str
) -> None:
    """Bad input names the object, the field and the remedy."""
    with pytest.raises(openb.TraceError, match=message):
        trace(tmp_path, nodes, pods)


def test_a_missing_file_is_one_error(tmp_path: Path) -> None:
    """A path that does not exist is named."""
    with pytest.raises(openb.TraceError, match=r"cannot read .*nothere\.csv"):
        openb.read_trace(tmp_path / "nodes.csv", tmp_path / "nothere.csv")


def test_every_task_is_accounted_for(tmp_path: Path) -> None:
    """A small trace runs to its end: each task succeeded or failed as in the trace, none is left over."""
    read = trace(tmp_path)
    report = run_trace(read, clock=lambda: 0.0)
    assert (report.tasks, report.succeeded, report.failed, report.unfinished) == (3, 2, 1, 0)
    assert report.used_peak == 2000
    assert {queue.queue: queue.admitted for queue in report.queues} == {"be": 2, "ls": 1}
    assert [sample.pending for sample in report.samples if sample.at_s < 90] == [0, 1, 1, 1], "only p1 has to wait"
    assert "<svg" in picture(report, "small & simple")
    assert "small &amp; simple" in picture(report, "small & simple")


def test_two_runs_write_the_same_log(tmp_path: Path) -> None:
    """Same trace, same log hash, and the sink sees every commit."""
    read = trace(tmp_path)
    seen: list[int] = []
    first = run_trace(read, clock=lambda: 0.0, sink=lambda seq, *_: seen.append(seq))
    second = run_trace(read, clock=lambda: 0.0)
    assert first.log_hash == second.log_hash
    assert seen == list(range(1, first.commits + 1))
