"""Dashboards and alerts ask for what there is, and every alert has a page that says what to do."""

import json
import re
from pathlib import Path

import pytest
import yaml
from tests.deploy.promql import OF_TARGETS, Query, expressions, registry

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy" / "kubernetes" / "monitoring"
RUNBOOKS = ROOT / "docs" / "operate" / "runbooks"
METRICS = registry()
DASHBOARDS = sorted((MONITORING / "dashboards").glob("*.json"))
ALERTS = [
    rule
    for document in yaml.safe_load_all((MONITORING / "alerts.yaml").read_text())
    for group in document["spec"]["groups"]
    for rule in group["rules"]
]

OF_KUEUE = [
    line
    for line in (Path(__file__).parent / "kueue_queries.promql").read_text().splitlines()
    if not line.startswith("#")
]


def plain(expression: str) -> str:
    """A query of Grafana's with its variables filled in."""
    return expression.replace("$__rate_interval", "5m").replace("$namespace", "a").replace("$cluster_queue", "b")


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda path: path.stem)
def test_every_query_of_a_dashboard_resolves(file: Path) -> None:
    """Its metrics exist, with the labels that it selects, groups by and shows in its legend."""
    found = list(expressions(json.loads(file.read_text())))
    assert found
    for title, expression, legend in found:
        query = Query(plain(expression), METRICS)
        assert not query.problems, f"{title}: {query.problems}"
        assert set(re.findall(r"\{\{(\w+)\}\}", legend)) <= query.labels, title


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_do_not_overlap(file: Path) -> None:
    """Each cell of Grafana's grid of 24 columns is one panel's."""
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(file.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_the_dashboards_show_every_metric_of_a_process() -> None:
    """One that nobody looks at is left out on purpose, by its name here."""
    shown: set[str] = set()
    for file in DASHBOARDS:
        for _, expression, _ in expressions(json.loads(file.read_text())):
            shown |= Query(plain(expression), METRICS).metrics
    # Behind these there is nothing to do: the epoch's number, and what the folded ones of other processes are too.
    left_out = {
        "headgate_epoch",
        "headgate_commits_folded_total",
        "headgate_events_folded_total",
        "headgate_stimuli_total",
        "headgate_clock_off",  # an alert
        "headgate_webhook_certificate_renewals_total",
    }
    assert {name for name in METRICS if name.startswith("headgate_")} - shown == left_out


@pytest.mark.parametrize("expression", OF_KUEUE)
def test_the_queries_that_kueue_documents_resolve(expression: str) -> None:
    """Panels that were made with them go on working."""
    assert not Query(expression, METRICS).problems


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_every_alert_resolves_and_has_a_runbook(rule: dict) -> None:
    """Its query and the labels in its text; a severity; and a page of its name, which the list of alerts leads to."""
    query = Query(rule["expr"], METRICS)
    assert not query.problems
    text = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= query.labels | OF_TARGETS
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    name = rule["alert"]
    assert rule["annotations"]["runbook_url"] == f"docs/operate/runbooks/{name}.md"
    page = (RUNBOOKS / f"{name}.md").read_text()
    assert page.startswith(f"# {name}\n")
    assert "## Do" in page
    assert f"(runbooks/{name}.md)" in (ROOT / "docs" / "operate" / "alerts.md").read_text()


def test_every_runbook_has_an_alert() -> None:
    """None is left of an alert that is gone."""
    assert {path.stem for path in RUNBOOKS.glob("*.md")} == {rule["alert"] for rule in ALERTS}


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("headgate_positions", "no metric headgate_positions"),
        ('headgate_phase{phases="leading"}', "headgate_phase: no label phases"),
        ("sum by (queue) (kueue_pending_workloads)", "by or without: no label queue"),
        ("rate(headgate_position[5m])", "rate(headgate_position), which is a gauge"),
        ("kueue_admission_wait_time_seconds", "kueue_admission_wait_time_seconds is a histogram: name a part of it"),
        ("headgate_position / on (resource) headgate_phase", "on or ignoring, left: no label resource"),
    ],
)
def test_what_does_not_resolve_is_found(expression: str, problem: str) -> None:
    """The check itself refuses what there is not."""
    assert problem in Query(expression, METRICS).problems
