"""Whether PromQL fits what Headgate serves: each metric, each label, and what is done with counters and gauges."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import promql_parser as promql
from tools.reference.metrics import Instrument, of_processes, of_the_cell, of_webhooks

OF_TARGETS = frozenset({"job", "instance", "namespace", "service", "endpoint", "pod", "process"})
"""What deploy/kubernetes/monitoring/service-monitor.yaml adds to every series, and the operator by itself."""
_COUNTERS = frozenset({"rate", "irate", "increase"})
_GAUGES = frozenset({"delta", "idelta", "deriv", "predict_linear"})
_PARTS = {"_bucket": {"le"}, "_sum": set(), "_count": set()}


def registry() -> dict[str, Instrument]:
    """Every metric that a process may serve, by its name."""
    return {each.name: each for each in (*of_processes(), *of_webhooks(), *of_the_cell())}


class Query:
    """
    A query, read. `problems` says what of it does not fit; `labels` are those that its result can have.

    Grafana's variables have to be replaced before.
    """

    def __init__(self, text: str, metrics: Mapping[str, Instrument]) -> None:
        self.problems: list[str] = []
        self._metrics = metrics
        self.metrics: set[str] = set()
        self.labels = frozenset(self._labels(promql.parse(text)))

    def _labels(self, node: Any, called: str = "") -> set[str]:
        match node:
            case promql.VectorSelector():
                return self._selected(node, called)
            case promql.MatrixSelector():
                return self._selected(node.vector_selector, called)
            case promql.ParenExpr() | promql.UnaryExpr() | promql.SubqueryExpr():
                return self._labels(node.expr)
            case promql.AggregateExpr():
                return self._aggregated(node)
            case promql.BinaryExpr():
                return self._combined(node)
            case promql.Call():
                return {label for each in node.args for label in self._labels(each, node.func.name)}
            case _:
                return set()

    def _selected(self, node: Any, called: str) -> set[str]:
        instrument, more = self._instrument(node.name)
        if instrument is None:
            self.problems.append(f"no metric {node.name}")
            return set()
        self.metrics.add(instrument.name)
        is_gauge = instrument.kind == "gauge"
        if (called in _COUNTERS and is_gauge) or (called in _GAUGES and not is_gauge):
            self.problems.append(f"{called}({node.name}), which is a {instrument.kind}")
        if instrument.kind == "histogram" and not node.name.endswith(tuple(_PARTS)):
            self.problems.append(f"{node.name} is a histogram: name a part of it")
        labels = {*instrument.labels, *OF_TARGETS, *more}
        self._check(node.name, (each.name for each in node.matchers.matchers), labels)
        return labels

    def _instrument(self, name: str) -> tuple[Instrument | None, set[str]]:
        if name in self._metrics:
            return self._metrics[name], set()
        for part, labels in _PARTS.items():
            found = self._metrics.get(name.removesuffix(part))
            if name.endswith(part) and found is not None and found.kind == "histogram":
                return found, labels
        return None, set()

    def _aggregated(self, node: Any) -> set[str]:
        inner = self._labels(node.expr)
        if node.modifier is None:
            return inner if node.op.__repr__().endswith(("Topk", "Bottomk")) else set()
        named = set(node.modifier.labels)
        self._check("by or without", named, inner)
        is_by = node.modifier.type == promql.AggModifierType.By
        return named if is_by else inner - named

    def _combined(self, node: Any) -> set[str]:
        left, right = self._labels(node.lhs), self._labels(node.rhs)
        matching = node.modifier.matching if node.modifier is not None else None
        if matching is not None:
            self._check("on or ignoring, left", matching.labels, left)
            self._check("on or ignoring, right", matching.labels, right)
        return left | right

    def _check(self, where: str, used: Iterable[str], known: set[str]) -> None:
        self.problems += [f"{where}: no label {label}" for label in used if label not in known]


def expressions(dashboard: Any) -> Iterator[tuple[str, str, str]]:
    """The title of each panel of a dashboard with its queries and their legends."""
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"], target["legendFormat"]
