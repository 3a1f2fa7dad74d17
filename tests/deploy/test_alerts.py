"""Alerts fire when they should, and not otherwise: promtool evaluates them over series that are made up."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.testing.control_plane.packaging import PROMTOOL, find_tool

ALERTS = Path(__file__).parents[2] / "deploy" / "kubernetes" / "monitoring" / "alerts.yaml"
SIX = ("informer-bridge", "queue-manager", "scheduler", "binder", "ungater", "snapshotter")

# An alert, when it is looked at, the labels with which it fires (a line that begins with > for each), and the series
# at intervals of a minute, in promtool's notation: 0x10 is 0 and ten more of it, 0+60x10 grows by 60.
CASES = """
HeadgateNoLeader 5m
> namespace=h process=scheduler
headgate_phase{namespace="h", process="scheduler", pod="s-0", phase="leading"} 0x10
headgate_phase{namespace="h", process="scheduler", pod="s-1", phase="leading"} 0x10

HeadgateNoLeader 5m
headgate_phase{namespace="h", process="scheduler", pod="s-0", phase="leading"} 0x10
headgate_phase{namespace="h", process="scheduler", pod="s-1", phase="leading"} 1x10

HeadgateTwoLeaders 8m
> namespace=h process=scheduler
headgate_phase{namespace="h", process="scheduler", pod="s-0", phase="leading"} 1x10
headgate_phase{namespace="h", process="scheduler", pod="s-1", phase="leading"} 1x10

HeadgateDependencyDown 5m
> namespace=h process=binder pod=b-0 dependency=kubernetes
headgate_dependency_up{namespace="h", process="binder", pod="b-0", dependency="kubernetes"} 1 0x10
headgate_dependency_up{namespace="h", process="binder", pod="b-0", dependency="jetstream"} 1x11

HeadgateBehind 8m
> namespace=h process=binder pod=b-0
headgate_position{namespace="h", process="scheduler", pod="s-0"} 10000x10
headgate_position{namespace="h", process="binder", pod="b-0"} 100x10
headgate_position{namespace="another", process="binder", pod="b-0"} 1x10

HeadgateCommitSlow 20m
> namespace=h process=scheduler
headgate_append_seconds_total{namespace="h", process="scheduler", pod="s-0"} 0+60x30
headgate_commits_appended_total{namespace="h", process="scheduler", pod="s-0"} 0+60x30
headgate_append_seconds_total{namespace="h", process="binder", pod="b-0"} 0+6x30
headgate_commits_appended_total{namespace="h", process="binder", pod="b-0"} 0+60x30

HeadgateEpochsChange 16m
> namespace=h process=scheduler
headgate_appends_refused_total{namespace="h", process="scheduler", pod="s-0"} 0+1x20
headgate_appends_refused_total{namespace="h", process="binder", pod="b-0"} 0x10 1x10

HeadgateQuarantine 3m
> namespace=h process=scheduler
headgate_quarantined_objects{namespace="h", process="scheduler", pod="s-0"} 0 1x5
headgate_quarantined_objects{namespace="h", process="binder", pod="b-0"} 0x6

HeadgateEntriesRefused 8m
> namespace=h process=scheduler
headgate_entries_refused{namespace="h", process="scheduler", pod="s-0"} 0x4 2x10

HeadgateEntriesRefused 30m
headgate_entries_refused{namespace="h", process="scheduler", pod="s-0"} 2x40

HeadgateDivergence 20m
> namespace=h process=snapshotter
headgate_divergences_total{namespace="h", process="snapshotter", pod="s-0"} 0x10 1x20

HeadgateClockOff 5m
> namespace=h pod=s-0
headgate_clock_off{namespace="h", process="scheduler", pod="s-0"} 0 1x10

HeadgateNoSnapshot 180m
> namespace=h
headgate_snapshots_total{namespace="h", process="snapshotter", pod="s-0"} 5x200
headgate_commits_folded_total{namespace="h", process="snapshotter", pod="s-0"} 0+300x200

HeadgateNoSnapshot 180m
headgate_snapshots_total{namespace="h", process="snapshotter", pod="s-0"} 5x100 6x100
headgate_commits_folded_total{namespace="h", process="snapshotter", pod="s-0"} 0+300x200

HeadgateNoSnapshot 180m
headgate_snapshots_total{namespace="h", process="snapshotter", pod="s-0"} 5x200
headgate_commits_folded_total{namespace="h", process="snapshotter", pod="s-0"} 0+1x200

HeadgateCallsRefused 20m
> namespace=h process=binder
headgate_calls_refused_total{namespace="h", process="binder", pod="b-0"} 0+30x30
headgate_calls_total{namespace="h", process="binder", pod="b-0"} 0+60x30

HeadgateCallsStuck 15m
> namespace=h pod=b-0
headgate_calls_unfinished{namespace="h", process="binder", pod="b-0"} 2000x20

HeadgateEventsDropped 40m
> namespace=h
headgate_events_dropped_total{namespace="h", process="binder", pod="b-0"} 0+10x60

HeadgateWebhookFailing 10m
> namespace=h path=/validate-job
headgate_webhook_requests_total{namespace="h", pod="w-0", path="/validate-job", result="failed"} 0+1x20
headgate_webhook_requests_total{namespace="h", pod="w-0", path="/mutate-job", result="refused"} 0+9x20

HeadgateWebhookSlow 20m
> namespace=h
headgate_webhook_request_seconds_bucket{namespace="h", pod="w-0", le="1"} 0+90x30
headgate_webhook_request_seconds_bucket{namespace="h", pod="w-0", le="5"} 0+100x30
headgate_webhook_request_seconds_bucket{namespace="h", pod="w-0", le="+Inf"} 0+100x30

HeadgateWebhookCertificate 20m
> namespace=h pod=w-0
headgate_webhook_certificate_expiry_timestamp_seconds{namespace="h", pod="w-0"} 20000x30
headgate_webhook_certificate_expiry_timestamp_seconds{namespace="h", pod="w-1"} 9000000x30

HeadgateQueueInactive 20m
> cluster_queue=a status=active
kueue_cluster_queue_status{cluster_queue="a", status="active"} 0x30
kueue_cluster_queue_status{cluster_queue="a", status="pending"} 1x30
kueue_cluster_queue_status{cluster_queue="b", status="active"} 1x30

HeadgateQueueStalled 150m
> cluster_queue=a
> cluster_queue=new
kueue_pending_workloads{cluster_queue="a", status="active"} 3x200
kueue_admitted_workloads_total{cluster_queue="a", priority_class=""} 7x200
kueue_pending_workloads{cluster_queue="b", status="active"} 3x200
kueue_admitted_workloads_total{cluster_queue="b", priority_class=""} 0+1x200
kueue_pending_workloads{cluster_queue="c", status="inadmissible"} 3x200
kueue_pending_workloads{cluster_queue="new", status="active"} 3x200
"""


def groups() -> list[Any]:
    """The rules as a file of Prometheus has them, without their texts."""
    (document,) = yaml.safe_load_all(ALERTS.read_text())
    found: list[Any] = document["spec"]["groups"]
    for group in found:
        for rule in group["rules"]:
            del rule["annotations"]
    return found


SEVERITIES = {rule["alert"]: rule["labels"]["severity"] for group in groups() for rule in group["rules"]}


def case(text: str) -> dict[str, Any]:
    """A case as promtool reads it."""
    head, *lines = text.splitlines()
    alert, at = head.split()
    fires = [dict(pair.split("=") for pair in line[1:].split()) for line in lines if line.startswith(">")]
    series = [line.rpartition("} ") for line in lines if not line.startswith(">")]
    return _test(alert, at, fires, [{"series": f"{name}}}", "values": values} for name, _, values in series])


def _test(alert: str, at: str, fires: list[dict[str, str]], series: list[dict[str, str]]) -> dict[str, Any]:
    expected = [{"exp_labels": {"severity": SEVERITIES[alert], **labels}} for labels in fires]
    rule = {"alertname": alert, "eval_time": at, "exp_alerts": expected}
    return {"name": alert, "interval": "1m", "input_series": series, "alert_rule_test": [rule]}


def missing(process: str) -> dict[str, Any]:
    """All processes but one are collected."""
    series = [
        {"series": f'headgate_phase{{namespace="h", process="{each}", phase="leading"}}', "values": "1x10"}
        for each in SIX
        if each != process
    ]
    return _test("HeadgateProcessMissing", "5m", [{"process": process}], series)


@pytest.mark.operators
def test_every_alert_fires_when_it_should(tmp_path: Path) -> None:
    """Each of the list, with the labels that its text shows, and not for the series beside it."""
    promtool = find_tool(PROMTOOL)
    tests = [*(case(each.strip()) for each in CASES.strip().split("\n\n")), *map(missing, SIX)]
    assert {each["name"] for each in tests} == set(SEVERITIES)
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": groups()}))
    (tmp_path / "tests.yaml").write_text(yaml.safe_dump({"rule_files": ["rules.yaml"], "tests": tests}))
    for command in (["check", "rules", "rules.yaml"], ["test", "rules", "tests.yaml"]):
        done = subprocess.run([str(promtool), *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
