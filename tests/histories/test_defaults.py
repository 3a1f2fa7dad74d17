"""A default in code has no bearing on a log that is there: neither on its state nor on what is decided again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.histories import record

from headgate.adapters.logfile import read_log_file
from headgate.cli.deciding_again import checks
from headgate.core import fold
from headgate.core.config import feature_gates
from headgate.core.config import reader as reading
from headgate.core.cycle import decide_cycle
from headgate.core.verification.replay import Plan, Replay
from headgate.events import configuration as contract
from headgate.events.commit import LoggedCommit, decode_commit, encode_event
from headgate.events.facts import ConfigurationObserved

ABSENT = Path(__file__).parent / "absent.json"
"""What fields that are missing in the `configuration.observed` of earlier versions mean."""

REQUIRED: dict[type, dict[str, str]] = {
    contract.ResourceTransformation: {"input": "r"},
    contract.CustomMetricLabel: {"name": "n"},
}
"""The fields that parts of a configuration cannot be without."""

ADDED: dict[type, set[str]] = {
    contract.Configuration: {"metrics"},
    contract.IntegrationsConfiguration: {"label_keys_to_copy"},
}
"""The fields that came later, and are recorded only where a file asks for something by them."""

Flip = Callable[[pytest.MonkeyPatch], None]


def flipped_gate(name: str) -> Flip:
    """A version in which a gate has the other default."""

    def flip(patch: pytest.MonkeyPatch) -> None:
        patch.setitem(feature_gates.DEFAULTS, name, not feature_gates.DEFAULTS[name])
        patch.setitem(
            feature_gates.KNOWN,
            name,
            msgspec.structs.replace(feature_gates.KNOWN[name], is_on=not feature_gates.KNOWN[name].is_on),
        )

    return flip


def other(value: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case None:
            return 1
        case tuple():
            return value[:1]
        case _:
            return {"Bounded": "CohortTree", "Eviction": "Creation", "Retain": "Replace", "": "IgnoreUndeclared"}[value]


def flipped_field(name: str) -> Flip:
    """A version that takes something else where a file leaves a field of the configuration out."""
    now = reading.DEFAULTS
    changed = msgspec.structs.replace(now, **{name: other(getattr(now, name))})
    return lambda patch: patch.setattr(reading, "DEFAULTS", changed)


FLIPS = {
    **{f"gate {name}": flipped_gate(name) for name in feature_gates.DEFAULTS},
    **{f"field {name}": flipped_field(name) for name in reading.Defaults.__struct_fields__},
}


def replayed(log: list[LoggedCommit], cell: str) -> tuple[bytes, Any]:
    """The state that a log folds to, and all that deciding it again has compared."""
    plan = Plan(checks())
    for logged in log:
        plan.feed(logged)
    replay = Replay(fold.new_state(cell), plan, decide_cycle)
    for logged in log:
        replay.feed(logged)
    return fold.encode(replay.state), replay.result()


def commits(name: str) -> list[LoggedCommit]:
    """A recorded log."""
    entries = read_log_file(record.log_path(name))
    return [decode_commit(entry.seq, entry.subject, entry.payload, entry.time_ms) for entry in entries]


@pytest.fixture(scope="module")
def before() -> dict[str, tuple[list[LoggedCommit], tuple[bytes, Any]]]:
    """Each recorded log, and what it is with the defaults as they are."""
    logs = {name: commits(name) for name in record.names()}
    return {name: (log, replayed(log, "sim")) for name, log in logs.items()}


@pytest.mark.parametrize("flip", FLIPS)
def test_a_changed_default_changes_no_recorded_log(
    before: dict[str, tuple[list[LoggedCommit], tuple[bytes, Any]]], flip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State and decisions are the same, to the byte."""
    FLIPS[flip](monkeypatch)
    for log, result in before.values():
        assert replayed(log, "sim") == result


@pytest.mark.parametrize("flip", FLIPS)
def test_a_changed_default_is_seen_in_what_is_recorded_anew(flip: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The flips above are of defaults that count: the same file means something else then."""
    file = {
        "kind": "Configuration",
        "fairSharing": {},
        "admissionFairSharing": {},
        "resources": {"transformations": [{"input": "example.com/a", "outputs": {"example.com/b": "1"}}]},
    }
    gated = {"featureGates": {"UnadmittedWorkloadsExplicitStatus": False}} if "Observability" in flip else {}
    files = [
        {"apiVersion": reading.V1BETA2, **file, **gated},
        {"apiVersion": reading.V1BETA2, "kind": "Configuration", "waitForPodsReady": {}, **gated},
        {"apiVersion": reading.V1BETA1, "kind": "Configuration", "waitForPodsReady": {"enable": True}, **gated},
    ]
    before = [reading.read_configuration(each) for each in files]
    FLIPS[flip](monkeypatch)
    assert [reading.read_configuration(each) for each in files] != before


def test_every_gate_that_a_decision_reads_is_recorded_and_has_a_value_for_logs_without_it() -> None:
    """A gate that is added needs a value with which earlier versions decided."""
    read = reading.read_configuration({"apiVersion": reading.V1BETA2, "kind": "Configuration"})
    assert read.feature_gates.keys() == feature_gates.DEFAULTS.keys() == feature_gates.UNRECORDED.keys()


def test_a_configuration_is_recorded_whole() -> None:
    """Every field is there, also where it is what it would mean if it were missing, but those of `ADDED`."""
    event = ConfigurationObserved(
        configuration=contract.Configuration(fair_sharing=contract.FairSharingConfiguration())
    )
    recorded = json.loads(encode_event(event))["configuration"]
    assert recorded.keys() == set(contract.Configuration.__struct_fields__) - ADDED[contract.Configuration]
    integrations = set(contract.IntegrationsConfiguration.__struct_fields__)
    assert recorded["integrations"].keys() == integrations - ADDED[contract.IntegrationsConfiguration]
    assert recorded["fair_sharing"].keys() == set(contract.FairSharingConfiguration.__struct_fields__)
    assert recorded["resources"].keys() == set(contract.ResourcesConfiguration.__struct_fields__)


@pytest.mark.parametrize(
    "asked",
    [{}, {"metrics": {"customLabels": []}}, {"integrations": {"frameworks": ["pod"], "labelKeysToCopy": []}}],
)
def test_what_earlier_versions_do_not_know_is_recorded_only_when_it_is_asked_for(asked: dict[str, Any]) -> None:
    """An earlier version that goes on with the log reads the event and writes it again to the byte."""
    gates = {"CustomMetricLabels": True}
    file = {"apiVersion": reading.V1BETA2, "kind": "Configuration", "featureGates": gates, **asked}
    recorded = json.loads(encode_event(ConfigurationObserved(configuration=reading.read_configuration(file))))
    assert not recorded["configuration"].keys() & ADDED[contract.Configuration]
    assert not recorded["configuration"]["integrations"].keys() & ADDED[contract.IntegrationsConfiguration]


def test_what_a_missing_field_means_never_changes() -> None:
    """
    Earlier versions recorded only what differed from this.

    A new field is UNSET, so that it is not in the file: earlier versions decided without it. To change what a file
    that leaves a field out means, change `headgate.core.config.reader.DEFAULTS`.
    """
    fields = {
        each.__name__: msgspec.to_builtins(each(**REQUIRED.get(each, {})))
        for each in contract.ConfigurationBranch.__subclasses__()
    }
    assert json.loads(msgspec.json.encode({"fields": fields, "gates": feature_gates.UNRECORDED})) == json.loads(
        ABSENT.read_text()
    )
