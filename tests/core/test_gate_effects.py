"""Every feature gate of Kueue has one effect in Headgate, or is refused with the reason."""

import re
from pathlib import Path

import pytest

from headgate.core.config import feature_gates
from headgate.core.config.fields import ConfigurationError
from headgate.core.config.gate_effects import OTHERS, REFUSED, is_set_off
from headgate.core.config.reader import read_configuration

TABLES = Path(__file__).parents[3] / "shared/reference/kueue-tables.md"
HEAD = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}


def test_each_gate_has_exactly_one_effect() -> None:
    """Read by decisions, always on, refused, or accepted with a meaning."""
    effects = [*feature_gates.DEFAULTS, *feature_gates.ALWAYS_ON, *REFUSED, *OTHERS]
    assert sorted(effects) == sorted(feature_gates.KNOWN)


@pytest.mark.skipif(not TABLES.exists(), reason="the tables of the reference are not beside this clone")
def test_the_gates_and_their_defaults_are_those_of_the_reference() -> None:
    """Each of its gates, and none more."""
    text = TABLES.read_text().split("## B.")[0]
    wanted = dict(re.findall(r"^\| ([A-Z]\w+) \| (on|off) \|", text, re.M))
    assert {gate.name: "on" if gate.is_on else "off" for gate in feature_gates.KNOWN.values()} == wanted


@pytest.mark.parametrize("gate", REFUSED)
def test_a_refused_gate_is_off_by_default_and_its_refusal_says_why(gate: str) -> None:
    """Set to false it is accepted."""
    assert not feature_gates.KNOWN[gate].is_on
    with pytest.raises(ConfigurationError, match=re.escape(REFUSED[gate])):
        read_configuration({**HEAD, "featureGates": {gate: True}})
    read_configuration({**HEAD, "featureGates": {gate: False}})


@pytest.mark.parametrize("gate", OTHERS)
def test_any_other_gate_is_accepted_as_it_is_set(gate: str) -> None:
    """But for a locked one, which is always on."""
    values = (True,) if feature_gates.KNOWN[gate].is_locked else (True, False)
    for value in values:
        read_configuration({**HEAD, "featureGates": {gate: value}})


@pytest.mark.parametrize(
    ("document", "is_off"),
    [
        ({}, False),
        ({"featureGates": {"A": True}}, False),
        ({"featureGates": {"A": False}}, True),
        ({"featureGates": 3}, False),
    ],
)
def test_a_gate_is_off_if_the_file_says_so(document: dict[str, object], is_off: bool) -> None:
    """Not if it says nothing."""
    assert is_set_off(document, "A") is is_off
