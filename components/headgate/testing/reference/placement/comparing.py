"""
How far our attempts agree with recorded ones, field by field, in the order of strictness of the recordings.

Ties are compared as the recordings say: reasons of one status and victims as sets, any of the best nodes is right.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from headgate.testing.reference.placement.scenario import Json


def _statuses(groups: list[Json] | None) -> list[Json]:
    keyed = [{**group, "reasons": sorted(group["reasons"]), "nodes": sorted(group["nodes"])} for group in groups or []]
    return sorted(keyed, key=lambda group: (group["plugin"], group["code"], group["reasons"]))


def _scores(attempt: Json, part: str) -> Json:
    return {name: scores.get(part, scores["raw"]) for name, scores in attempt.get("scores", {}).items()}


def _candidates(attempt: Json) -> Json | None:
    found = attempt.get("postfilter", {}).get("candidates")
    return found and {node: {**each, "victims": sorted(each["victims"])} for node, each in found.items()}


def _postfilter(attempt: Json, part: str) -> Any:
    return attempt.get("postfilter", {}).get(part)


FIELDS: Final[Mapping[str, Callable[[Json], Any]]] = {
    "filter": lambda each: _statuses(each.get("filter")),
    "prefilter.nodes": lambda each: each["prefilter"].get("nodes"),
    "prefilter.rejected": lambda each: each["prefilter"].get("rejected"),
    "feasible": lambda each: each.get("feasible"),
    "path": lambda each: (each["path"], each.get("nominatedRejected")),
    "scores.raw": lambda each: _scores(each, "raw"),
    "scores.norm": lambda each: _scores(each, "norm"),
    "total": lambda each: each.get("total"),
    "best": lambda each: each.get("best"),
    "node": lambda each: each.get("node"),
    "also": lambda each: _statuses(each.get("also")),
    "postfilter.candidates": _candidates,
    "postfilter.best": lambda each: _postfilter(each, "best"),
    "postfilter.code": lambda each: (_postfilter(each, "code"), _postfilter(each, "mode")),
    "postfilter.hopeless": lambda each: _statuses(_postfilter(each, "hopeless")),
    "rejectors": lambda each: each.get("rejectors"),
    "message": lambda each: (each.get("reason"), each.get("message")),
    "prefilter.skip": lambda each: each["prefilter"]["skip"],
    "prescoreSkip": lambda each: each.get("prescoreSkip", []),
}
"""The fields of an attempt, as far as two attempts have to agree in them."""


def differing_fields(ours: Json, recorded: Json) -> list[str]:
    """The fields that two attempts do not agree in."""
    return [name for name, of in FIELDS.items() if of(ours) != of(recorded)]


# --- whole runs ----------------------------------------------------------------------------------------------------


def _sequence(outcome: Json) -> list[Any]:
    """What happened when: whom the queue gave and where each pod went, and every change."""
    return [_brief(step) for step in outcome["steps"]]


def _brief(step: Json) -> Any:
    if "attempt" in step:
        attempt = step["attempt"]
        return step["t"], *(attempt.get(field) for field in ("pod", "profile", "n", "from", "node", "to"))
    return step["t"], *(step.get(field) for field in ("do", "script", "pod", "node", "until"))


def _by_step(outcome: Json, field: str) -> list[Any]:
    return [step.get(field) for step in outcome["steps"] if "attempt" not in step]


def _attempts(outcome: Json) -> list[Json]:
    return [
        {name: of(step["attempt"]) for name, of in FIELDS.items()} for step in outcome["steps"] if "attempt" in step
    ]


RUN_FIELDS: Final[Mapping[str, Callable[[Json], Any]]] = {
    "profiles": lambda each: each["profiles"],
    "bound": lambda each: each["bound"],
    "pending": lambda each: each["pending"],
    "stop": lambda each: each["stop"],
    "sequence": _sequence,
    "attempts": _attempts,
    "events": lambda each: _by_step(each, "events"),
    "hints": lambda each: _by_step(each, "hints"),
    "moves": lambda each: _by_step(each, "moves"),
}
"""The fields of a whole run."""


def differing_run_fields(ours: Json, recorded: Json) -> list[str]:
    """The fields that the outcomes of two runs do not agree in."""
    return [name for name, of in RUN_FIELDS.items() if of(ours) != of(recorded)]
