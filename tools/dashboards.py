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


class Query(NamedTuple):
    """A PromQL expression, and what names each of its lines."""

    expression: str
    legend: str


class Panel(NamedTuple):
    """A panel. A width of 24 is a whole row."""

    title: str
    about: str
    queries: tuple[Query, ...]
    unit: str
    kind: str
    width: int


class PanelRow(NamedTuple):
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


def panel(
    title: str, about: str, *queries: Query, unit: str = "short", kind: str = "timeseries", width: int = 8
) -> Panel:
    """A panel."""
    return Panel(title, about, queries, unit, kind, width)


def cell(metric: str) -> str:
    """A metric of the namespace that is chosen."""
    return f'{metric}{{namespace="$namespace"}}'


def queue(metric: str) -> str:
    """A metric of the ClusterQueues that are chosen."""
    return f'{metric}{{cluster_queue=~"$cluster_queue"}}'


def rate(selected: str) -> str:
    """What is added to a counter in a second."""
    return f"rate({selected}[$__rate_interval])"


def hourly(selected: str) -> str:
    """What is added to a counter in an hour."""
    return f"increase({selected}[1h])"


def lines(expression: str, *labels: str, legend: str = "{}") -> Query:
    """A line for each series, named by these labels."""
    return Query(expression, legend.format(" ".join(f"{{{{{each}}}}}" for each in labels)))


def by(function: str, expression: str, *labels: str) -> str:
    """Series put together, but for these labels."""
    return f"{function} by ({', '.join(labels)}) ({expression})" if labels else f"{function}({expression})"


def sums(expression: str, *labels: str, legend: str = "{}") -> Query:
    """The sum of series, for each value of these labels."""
    return lines(by("sum", expression, *labels), *labels, legend=legend)


def maxima(expression: str, *labels: str, legend: str = "{}") -> Query:
    """The largest of series, for each value of these labels."""
    return lines(by("max", expression, *labels), *labels, legend=legend)


def quotients(expression: str, divisor: str, *labels: str) -> Query:
    """The sum of series by that of others, for each value of these labels."""
    return lines(f"{by('sum', expression, *labels)} / {by('sum', divisor, *labels)}", *labels)


def quantiles(share: float, selected: str, *labels: str, legend: str = "{}") -> Query:
    """The value that this share of what a histogram has seen is below, for each value of these labels."""
    return lines(f"histogram_quantile({share}, {by('sum', rate(selected), 'le', *labels)})", *labels, legend=legend)


CELL: Final = (
    PanelRow(
        "Is it well?",
        (
            panel(
                "Leading",
                "1 for each process that has a leader. The webhook has none: all of its replicas answer.",
                sums('headgate_phase{namespace="$namespace", phase="leading"}', "process"),
                kind="stat",
                width=12,
            ),
            panel(
                "Dependencies down",
                "What a pod cannot reach: the broker, the API server.",
                lines(f"{cell('headgate_dependency_up')} == 0", "pod", "dependency"),
                kind="stat",
                width=6,
            ),
            panel(
                "In quarantine",
                "Objects that a process has set aside after a failure.",
                maxima(cell("headgate_quarantined_objects"), "process"),
                kind="stat",
                width=6,
            ),
            panel(
                "Failed placement plugins",
                "Plugins that have raised an exception: each such attempt fails.",
                maxima(cell("headgate_placement_plugin_failed"), "plugin", "extension_point"),
                kind="stat",
                width=12,
            ),
        ),
    ),
    PanelRow(
        "The log",
        (
            panel(
                "Position",
                "The last sequence that each pod has folded.",
                lines(cell("headgate_position"), "pod"),
            ),
            panel(
                "Behind",
                "How far each pod is behind the one that is furthest.",
                lines(f"scalar({by('max', cell('headgate_position'))}) - {cell('headgate_position')}", "pod"),
            ),
            panel(
                "Waiting to be folded",
                "Entries that a pod has received and not folded yet.",
                lines(cell("headgate_entries_waiting"), "pod"),
            ),
            panel(
                "Commits",
                "Commits a second, by the process that appends them.",
                sums(rate(cell("headgate_commits_appended_total")), "process"),
                unit="ops",
            ),
            panel(
                "Commit latency",
                "From a decision to the acknowledgement of its append, on average.",
                quotients(
                    rate(cell("headgate_append_seconds_total")),
                    rate(cell("headgate_commits_appended_total")),
                    "process",
                ),
                unit="s",
            ),
            panel(
                "Events",
                "Events a second, by the process that appends them.",
                sums(rate(cell("headgate_events_appended_total")), "process"),
                unit="ops",
            ),
            panel(
                "Time spent folding",
                "The share of a core that each pod folds with.",
                lines(rate(cell("headgate_fold_seconds_total")), "pod"),
                unit="percentunit",
            ),
            panel(
                "Refused appends and new epochs",
                "Each refused append ends an epoch. More than a few an hour: a lease is contended.",
                sums(hourly(cell("headgate_appends_refused_total")), "process", legend="refused {}"),
                sums(hourly(cell("headgate_terms_total")), "process", legend="epochs {}"),
            ),
            panel(
                "Entries refused, divergences",
                "Entries that are not of the log; stretches that were folded again to another state. Both are 0.",
                maxima(cell("headgate_entries_refused"), "process", legend="entries {}"),
                sums(cell("headgate_divergences_total"), "process", legend="divergences {}"),
            ),
        ),
    ),
    PanelRow(
        "Decisions",
        (
            panel(
                "Decisions",
                "How often each machine is asked, a second.",
                sums(rate(cell("headgate_decisions_total")), "process"),
                unit="ops",
            ),
            panel(
                "Time of a decision",
                "On average.",
                quotients(
                    rate(cell("headgate_decide_seconds_total")), rate(cell("headgate_decisions_total")), "process"
                ),
                unit="s",
            ),
            panel(
                "Scheduling attempts",
                "Cycles that tried to admit workloads, a second.",
                sums(rate(cell("kueue_admission_attempts_total")), "result"),
                unit="ops",
            ),
        ),
    ),
    PanelRow(
        "The API server",
        (
            panel(
                "Writes",
                "Calls a second, by process.",
                sums(rate(cell("headgate_calls_total")), "process"),
                unit="ops",
            ),
            panel(
                "Calls without an answer",
                "Now. At limits.calls_max a process takes no further decision.",
                lines(cell("headgate_calls_unfinished"), "pod"),
            ),
            panel(
                "Refused and repeated",
                "Calls that were answered with a definite no, and requests that were made again.",
                sums(rate(cell("headgate_calls_refused_total")), "process", legend="refused {}"),
                sums(rate(cell("headgate_kubernetes_retries_total")), "process", "cause"),
                unit="ops",
            ),
            panel(
                "Watch events",
                "What the informer bridge is told, by resource.",
                sums(rate(cell("headgate_kubernetes_watches_total")), "resource"),
                unit="ops",
            ),
            panel(
                "Stimuli waiting",
                "Answers and watch events that wait for their machine.",
                lines(cell("headgate_stimuli_waiting"), "pod"),
            ),
            panel(
                "Kubernetes Events dropped",
                "Not written because too many were waiting.",
                sums(rate(cell("headgate_events_dropped_total")), legend="dropped"),
                unit="ops",
            ),
        ),
    ),
    PanelRow(
        "Snapshots and feed",
        (
            panel(
                "Snapshots in an hour",
                "Those stored, and the stretches of the log that were folded again to compare.",
                sums(hourly(cell("headgate_snapshots_total")), legend="stored"),
                sums(hourly(cell("headgate_verifications_total")), legend="verified"),
                width=12,
            ),
            panel(
                "Feed",
                "Messages a second for subscribers.",
                sums(rate(cell("headgate_feed_messages_total")), legend="messages"),
                unit="ops",
                width=12,
            ),
        ),
    ),
    PanelRow(
        "The webhook",
        (
            panel("Reviews", "By result.", sums(rate(cell("headgate_webhook_requests_total")), "result"), unit="ops"),
            panel(
                "Time of an answer",
                "99 of 100 are faster.",
                quantiles(0.99, cell("headgate_webhook_request_seconds_bucket"), "path"),
                unit="s",
            ),
            panel(
                "Certificate",
                "How long the certificate in use is valid.",
                lines(f"{cell('headgate_webhook_certificate_expiry_timestamp_seconds')} - time()", "pod"),
                unit="s",
            ),
        ),
    ),
)

QUEUES: Final = (
    PanelRow(
        "Waiting",
        (
            panel(
                "Pending workloads",
                "Active ones are tried in turn; inadmissible ones wait for a change.",
                sums(queue("kueue_pending_workloads"), "cluster_queue", "status"),
            ),
            panel(
                "Why they are not admitted",
                "By reason.",
                sums(queue("kueue_unadmitted_workloads"), "reason", "underlying_cause"),
            ),
            panel(
                "Time until admission",
                "Half, and 95 of 100, are admitted sooner.",
                *(
                    quantiles(share, queue("kueue_admission_wait_time_seconds_bucket"), "cluster_queue", legend=legend)
                    for share, legend in ((0.5, "{} p50"), (0.95, "{} p95"))
                ),
                unit="s",
            ),
        ),
    ),
    PanelRow(
        "Throughput",
        (
            panel(
                "Admitted in an hour",
                "Workloads.",
                sums(hourly(queue("kueue_admitted_workloads_total")), "cluster_queue"),
            ),
            panel(
                "Finished in an hour",
                "Workloads.",
                sums(hourly(queue("kueue_finished_workloads_total")), "cluster_queue"),
            ),
            panel(
                "Evicted in an hour",
                "By reason; preemptions are among them.",
                sums(hourly(queue("kueue_evicted_workloads_total")), "cluster_queue", "reason"),
            ),
        ),
    ),
    PanelRow(
        "Quota",
        (
            panel(
                "Use of nominal quota",
                "More than 100 % is borrowed.",
                quotients(
                    queue("kueue_cluster_queue_resource_usage"),
                    queue("kueue_cluster_queue_nominal_quota"),
                    "cluster_queue",
                    "resource",
                ),
                unit="percentunit",
            ),
            panel(
                "Reserved, and requested by who waits",
                "By resource.",
                sums(queue("kueue_cluster_queue_resource_reservation"), "resource", legend="{} reserved"),
                sums(queue("kueue_cluster_queue_resource_pending"), "resource", legend="{} pending"),
            ),
            panel(
                "Weighted share",
                "Of what the cohort lends, by ClusterQueue.",
                lines(queue("kueue_cluster_queue_weighted_share"), "cluster_queue"),
            ),
        ),
    ),
    PanelRow(
        "Running",
        (
            panel("Admitted workloads", "Now.", sums(queue("kueue_admitted_active_workloads"), "cluster_queue")),
            panel(
                "Time until pods are ready",
                "From the admission; 95 of 100 are sooner.",
                quantiles(0.95, queue("kueue_admitted_until_ready_wait_time_seconds_bucket"), "cluster_queue"),
                unit="s",
            ),
            panel(
                "Preempted in an hour",
                "By the ClusterQueue that preempts.",
                sums(hourly("kueue_preempted_workloads_total"), "preempting_cluster_queue", "reason"),
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
