"""
The Grafana dashboards of deploy/kubernetes/monitoring, made from one table each.

A line of a table is a panel: its kind, unit, title, what it means, and its queries with their legends. `make schemas`
writes them, `make check` compares them.
"""
# Over 400 lines: tables of panels, which are data, and the few lines that write them.

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from tools.generated import write_or_compare

FOLDER: Final = Path(__file__).parents[1] / "deploy" / "kubernetes" / "monitoring" / "dashboards"
SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_COLUMNS: Final = 24


class Panel(NamedTuple):
    """A panel. `queries` are expressions with their legends; a width of 24 is a whole row."""

    title: str
    about: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"
    width: int = 8


class PanelRow(NamedTuple):
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


OF = 'namespace="$namespace"'

CELL: Final = (
    PanelRow(
        "Is it well?",
        (
            Panel(
                "Leading",
                "1 for each process that has a leader. The webhook has none: all of its replicas answer.",
                ((f'sum by (process) (headgate_phase{{{OF}, phase="leading"}})', "{{process}}"),),
                kind="stat",
                width=12,
            ),
            Panel(
                "Dependencies down",
                "What a pod cannot reach: the broker, the API server.",
                ((f"headgate_dependency_up{{{OF}}} == 0", "{{pod}} {{dependency}}"),),
                kind="stat",
                width=6,
            ),
            Panel(
                "In quarantine",
                "Objects that a process has set aside after a failure.",
                ((f"max by (process) (headgate_quarantined_objects{{{OF}}})", "{{process}}"),),
                kind="stat",
                width=6,
            ),
        ),
    ),
    PanelRow(
        "The log",
        (
            Panel(
                "Position",
                "The last sequence that each pod has folded.",
                ((f"headgate_position{{{OF}}}", "{{pod}}"),),
            ),
            Panel(
                "Behind",
                "How far each pod is behind the one that is furthest.",
                ((f"scalar(max(headgate_position{{{OF}}})) - headgate_position{{{OF}}}", "{{pod}}"),),
            ),
            Panel(
                "Waiting to be folded",
                "Entries that a pod has received and not folded yet.",
                ((f"headgate_entries_waiting{{{OF}}}", "{{pod}}"),),
            ),
            Panel(
                "Commits",
                "Commits a second, by the process that appends them.",
                (
                    (
                        f"sum by (process) (rate(headgate_commits_appended_total{{{OF}}}[$__rate_interval]))",
                        "{{process}}",
                    ),
                ),
                unit="ops",
            ),
            Panel(
                "Commit latency",
                "From a decision to the acknowledgement of its append, on average.",
                (
                    (
                        f"sum by (process) (rate(headgate_append_seconds_total{{{OF}}}[$__rate_interval])) / "
                        f"sum by (process) (rate(headgate_commits_appended_total{{{OF}}}[$__rate_interval]))",
                        "{{process}}",
                    ),
                ),
                unit="s",
            ),
            Panel(
                "Events",
                "Events a second, by the process that appends them.",
                (
                    (
                        f"sum by (process) (rate(headgate_events_appended_total{{{OF}}}[$__rate_interval]))",
                        "{{process}}",
                    ),
                ),
                unit="ops",
            ),
            Panel(
                "Time spent folding",
                "The share of a core that each pod folds with.",
                ((f"rate(headgate_fold_seconds_total{{{OF}}}[$__rate_interval])", "{{pod}}"),),
                unit="percentunit",
            ),
            Panel(
                "Refused appends and new epochs",
                "Each refused append ends an epoch. More than a few an hour: a lease is contended.",
                (
                    (f"sum by (process) (increase(headgate_appends_refused_total{{{OF}}}[1h]))", "refused {{process}}"),
                    (f"sum by (process) (increase(headgate_terms_total{{{OF}}}[1h]))", "epochs {{process}}"),
                ),
            ),
            Panel(
                "Entries refused, divergences",
                "Entries that are not of the log; stretches that were folded again to another state. Both are 0.",
                (
                    (f"max by (process) (headgate_entries_refused{{{OF}}})", "entries {{process}}"),
                    (f"sum by (process) (headgate_divergences_total{{{OF}}})", "divergences {{process}}"),
                ),
            ),
        ),
    ),
    PanelRow(
        "Decisions",
        (
            Panel(
                "Decisions",
                "How often each machine is asked, a second.",
                ((f"sum by (process) (rate(headgate_decisions_total{{{OF}}}[$__rate_interval]))", "{{process}}"),),
                unit="ops",
            ),
            Panel(
                "Time of a decision",
                "On average.",
                (
                    (
                        f"sum by (process) (rate(headgate_decide_seconds_total{{{OF}}}[$__rate_interval])) / "
                        f"sum by (process) (rate(headgate_decisions_total{{{OF}}}[$__rate_interval]))",
                        "{{process}}",
                    ),
                ),
                unit="s",
            ),
            Panel(
                "Scheduling attempts",
                "Cycles that tried to admit workloads, a second.",
                ((f"sum by (result) (rate(kueue_admission_attempts_total{{{OF}}}[$__rate_interval]))", "{{result}}"),),
                unit="ops",
            ),
        ),
    ),
    PanelRow(
        "The API server",
        (
            Panel(
                "Writes",
                "Calls a second, by process.",
                ((f"sum by (process) (rate(headgate_calls_total{{{OF}}}[$__rate_interval]))", "{{process}}"),),
                unit="ops",
            ),
            Panel(
                "Calls without an answer",
                "Now. At limits.calls_max a process takes no further decision.",
                ((f"headgate_calls_unfinished{{{OF}}}", "{{pod}}"),),
            ),
            Panel(
                "Refused and repeated",
                "Calls that were answered with a definite no, and requests that were made again.",
                (
                    (
                        f"sum by (process) (rate(headgate_calls_refused_total{{{OF}}}[$__rate_interval]))",
                        "refused {{process}}",
                    ),
                    (
                        f"sum by (process, cause) (rate(headgate_kubernetes_retries_total{{{OF}}}[$__rate_interval]))",
                        "{{process}} {{cause}}",
                    ),
                ),
                unit="ops",
            ),
            Panel(
                "Watch events",
                "What the informer bridge is told, by resource.",
                (
                    (
                        f"sum by (resource) (rate(headgate_kubernetes_watches_total{{{OF}}}[$__rate_interval]))",
                        "{{resource}}",
                    ),
                ),
                unit="ops",
            ),
            Panel(
                "Stimuli waiting",
                "Answers and watch events that wait for their machine.",
                ((f"headgate_stimuli_waiting{{{OF}}}", "{{pod}}"),),
            ),
            Panel(
                "Kubernetes Events dropped",
                "Not written because too many were waiting.",
                ((f"sum(rate(headgate_events_dropped_total{{{OF}}}[$__rate_interval]))", "dropped"),),
                unit="ops",
            ),
        ),
    ),
    PanelRow(
        "Snapshots and feed",
        (
            Panel(
                "Snapshots in an hour",
                "Those stored, and the stretches of the log that were folded again to compare.",
                (
                    (f"sum(increase(headgate_snapshots_total{{{OF}}}[1h]))", "stored"),
                    (f"sum(increase(headgate_verifications_total{{{OF}}}[1h]))", "verified"),
                ),
                width=12,
            ),
            Panel(
                "Feed",
                "Messages a second for subscribers.",
                ((f"sum(rate(headgate_feed_messages_total{{{OF}}}[$__rate_interval]))", "messages"),),
                unit="ops",
                width=12,
            ),
        ),
    ),
    PanelRow(
        "The webhook",
        (
            Panel(
                "Reviews",
                "By result.",
                ((f"sum by (result) (rate(headgate_webhook_requests_total{{{OF}}}[$__rate_interval]))", "{{result}}"),),
                unit="ops",
            ),
            Panel(
                "Time of an answer",
                "99 of 100 are faster.",
                (
                    (
                        "histogram_quantile(0.99, sum by (le, path) "
                        f"(rate(headgate_webhook_request_seconds_bucket{{{OF}}}[$__rate_interval])))",
                        "{{path}}",
                    ),
                ),
                unit="s",
            ),
            Panel(
                "Certificate",
                "How long the certificate in use is valid.",
                ((f"headgate_webhook_certificate_expiry_timestamp_seconds{{{OF}}} - time()", "{{pod}}"),),
                unit="s",
            ),
        ),
    ),
)

CQ = 'cluster_queue=~"$cluster_queue"'

QUEUES: Final = (
    PanelRow(
        "Waiting",
        (
            Panel(
                "Pending workloads",
                "Active ones are tried in turn; inadmissible ones wait for a change.",
                (
                    (
                        f"sum by (cluster_queue, status) (kueue_pending_workloads{{{CQ}}})",
                        "{{cluster_queue}} {{status}}",
                    ),
                ),
            ),
            Panel(
                "Why they are not admitted",
                "By reason.",
                (
                    (
                        f"sum by (reason, underlying_cause) (kueue_unadmitted_workloads{{{CQ}}})",
                        "{{reason}} {{underlying_cause}}",
                    ),
                ),
            ),
            Panel(
                "Time until admission",
                "Half, and 95 of 100, are admitted sooner.",
                (
                    (
                        "histogram_quantile(0.5, sum by (le, cluster_queue) "
                        f"(rate(kueue_admission_wait_time_seconds_bucket{{{CQ}}}[$__rate_interval])))",
                        "{{cluster_queue}} p50",
                    ),
                    (
                        "histogram_quantile(0.95, sum by (le, cluster_queue) "
                        f"(rate(kueue_admission_wait_time_seconds_bucket{{{CQ}}}[$__rate_interval])))",
                        "{{cluster_queue}} p95",
                    ),
                ),
                unit="s",
            ),
        ),
    ),
    PanelRow(
        "Throughput",
        (
            Panel(
                "Admitted in an hour",
                "Workloads.",
                (
                    (
                        f"sum by (cluster_queue) (increase(kueue_admitted_workloads_total{{{CQ}}}[1h]))",
                        "{{cluster_queue}}",
                    ),
                ),
            ),
            Panel(
                "Finished in an hour",
                "Workloads.",
                (
                    (
                        f"sum by (cluster_queue) (increase(kueue_finished_workloads_total{{{CQ}}}[1h]))",
                        "{{cluster_queue}}",
                    ),
                ),
            ),
            Panel(
                "Evicted in an hour",
                "By reason; preemptions are among them.",
                (
                    (
                        f"sum by (cluster_queue, reason) (increase(kueue_evicted_workloads_total{{{CQ}}}[1h]))",
                        "{{cluster_queue}} {{reason}}",
                    ),
                ),
            ),
        ),
    ),
    PanelRow(
        "Quota",
        (
            Panel(
                "Use of nominal quota",
                "More than 100 % is borrowed.",
                (
                    (
                        f"sum by (cluster_queue, resource) (kueue_cluster_queue_resource_usage{{{CQ}}}) / "
                        f"sum by (cluster_queue, resource) (kueue_cluster_queue_nominal_quota{{{CQ}}})",
                        "{{cluster_queue}} {{resource}}",
                    ),
                ),
                unit="percentunit",
            ),
            Panel(
                "Reserved, and requested by who waits",
                "By resource.",
                (
                    (f"sum by (resource) (kueue_cluster_queue_resource_reservation{{{CQ}}})", "{{resource}} reserved"),
                    (f"sum by (resource) (kueue_cluster_queue_resource_pending{{{CQ}}})", "{{resource}} pending"),
                ),
            ),
            Panel(
                "Weighted share",
                "Of what the cohort lends, by ClusterQueue.",
                ((f"kueue_cluster_queue_weighted_share{{{CQ}}}", "{{cluster_queue}}"),),
            ),
        ),
    ),
    PanelRow(
        "Running",
        (
            Panel(
                "Admitted workloads",
                "Now.",
                ((f"sum by (cluster_queue) (kueue_admitted_active_workloads{{{CQ}}})", "{{cluster_queue}}"),),
            ),
            Panel(
                "Time until pods are ready",
                "From the admission; 95 of 100 are sooner.",
                (
                    (
                        "histogram_quantile(0.95, sum by (le, cluster_queue) "
                        f"(rate(kueue_admitted_until_ready_wait_time_seconds_bucket{{{CQ}}}[$__rate_interval])))",
                        "{{cluster_queue}}",
                    ),
                ),
                unit="s",
            ),
            Panel(
                "Preempted in an hour",
                "By the ClusterQueue that preempts.",
                (
                    (
                        "sum by (preempting_cluster_queue, reason) (increase(kueue_preempted_workloads_total[1h]))",
                        "{{preempting_cluster_queue}} {{reason}}",
                    ),
                ),
            ),
        ),
    ),
)


def dashboards() -> dict[Path, str]:
    """Every dashboard's file and content."""
    made = {
        "headgate-cell": _dashboard(
            "headgate-cell", "Headgate / Cell", CELL, ("namespace", "headgate_position", False)
        ),
        "headgate-queues": _dashboard(
            "headgate-queues", "Headgate / Queues", QUEUES, ("cluster_queue", "kueue_cluster_queue_info", True)
        ),
    }
    return {FOLDER / f"{name}.json": json.dumps(each, indent=1) + "\n" for name, each in made.items()}


def _dashboard(uid: str, title: str, rows: tuple[PanelRow, ...], variable: tuple[str, str, bool]) -> dict[str, Any]:
    label, metric, several = variable
    query = f"label_values({metric}, {label})"
    return {
        "uid": uid,
        "title": title,
        "tags": ["headgate", "kueue"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "type": "datasource", "query": "prometheus"},
                {
                    "name": label,
                    "type": "query",
                    "datasource": SOURCE,
                    "query": {"query": query, "refId": label},
                    "definition": query,
                    "refresh": 2,
                    "multi": several,
                    "includeAll": several,
                    **({"allValue": ".*", "current": {"text": "All", "value": "$__all"}} if several else {}),
                },
            ]
        },
        "panels": list(_panels(rows)),
    }


def _panels(rows: tuple[PanelRow, ...]) -> Iterator[dict[str, Any]]:
    number, top = 0, 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "gridPos": {"h": 1, "w": _COLUMNS, "x": 0, "y": top},
            "panels": [],
        }
        top, left = top + 1, 0
        height = 4 if all(each.kind == "stat" for each in row.panels) else 8
        for panel in row.panels:
            if left + panel.width > _COLUMNS:
                top, left = top + height, 0
            number += 1
            yield _panel(number, panel, {"h": height, "w": panel.width, "x": left, "y": top})
            left += panel.width
        top += height


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": expression, "legendFormat": legend}
        for index, (expression, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


if __name__ == "__main__":
    sys.exit(write_or_compare(sys.argv[1:], dashboards(), "tools/dashboards.py"))
