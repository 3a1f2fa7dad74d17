"""A placement plugin from another package: found by its entry point, configured, and run like the built-in ones."""

import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from tests.support.placement import attempted, cluster_of, node, pod

from headgate.core.config.fields import ConfigurationError
from headgate.core.placement.attempt import PlacementAttempt
from headgate.core.placement.configuration.profiles import read_profiles
from headgate.core.placement.framework.runtime import Framework
from headgate.core.placement.plugins.registry import REGISTRY
from headgate.processes.runtime.extensions import PLACEMENT_GROUP, ExtensionError, load_placement_plugins

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "placement_plugin" / "example_generation.py"
POINT = EntryPoint("Generation", "example_generation:Generation", PLACEMENT_GROUP)


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(EXAMPLE.parent))
    yield
    sys.modules.pop("example_generation", None)


def configuration(**fields: Any) -> dict[str, Any]:
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": "Generation", "weight": 2}]}}, **fields}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "headgate", **profile}],
    }


def placed(label: str, asked: str, **fields: Any) -> PlacementAttempt:
    """The attempt of a pod that asks for a generation, on nodes of the generations 1 to 3."""
    nodes = [node(f"gen{each}", labels={label: str(each)}) for each in (1, 2, 3)]
    cluster = cluster_of(*nodes, pod("p", labels={label: asked}))
    profile = read_profiles(configuration(**fields), load_placement_plugins([POINT])).by_name["headgate"]
    return attempted(Framework(profile, cluster), "ns/p")


def test_the_example_of_the_documentation_filters_and_scores() -> None:
    """Too old nodes are named in the message with its reason; of the others the oldest is taken."""
    assert placed("example.com/generation", "2").node == "gen2"
    made = placed("example.com/generation", "7")
    assert made.message.startswith("0/3 nodes are available: 3 node(s) were of an older generation.")
    assert made.rejectors == ("Generation",)


def test_arguments_are_those_of_plugin_config() -> None:
    """As a dict; the version and kind that they may carry are left out."""
    args = {"apiVersion": "example.com/v1", "kind": "GenerationArgs", "label": "example.com/gpu-generation"}
    assert placed("example.com/gpu-generation", "3", pluginConfig=[{"name": "Generation", "args": args}]).node == "gen3"


def test_a_label_that_it_cannot_read_costs_its_pod_alone() -> None:
    """The documentation shows this message."""
    made = placed("example.com/generation", "newest")
    expected = "running Filter plugin \"Generation\": ValueError: invalid literal for int() with base 10: 'newest'"
    assert (made.node, made.reason, made.message) == ("", "SchedulerError", expected)
    assert expected in (ROOT / "docs" / "guides" / "placement-plugins.md").read_text()


def test_the_documentation_shows_the_example_as_it_is() -> None:
    """Line by line."""
    assert EXAMPLE.read_text() in (ROOT / "docs" / "guides" / "placement-plugins.md").read_text()


def test_without_its_package_a_plugin_cannot_be_enabled() -> None:
    """One error that names the field."""
    expected = r"profiles\[0\]\.plugins\.multiPoint\.enabled\[0\]\.name: there is no plugin 'Generation'"
    with pytest.raises(ConfigurationError, match=expected):
        read_profiles(configuration(), load_placement_plugins([]))


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        ("Generation", "no_such_module:Generation", "ModuleNotFoundError"),
        ("Generation", "example_generation:OLD", "TypeError: a PluginStatus cannot be called"),
        ("NodePorts", "example_generation:Generation", "there is a plugin of this name already"),
        ("Other", "headgate.core.placement.plugins.node_name:FACTORY", "ValueError: the factory makes 'NodeName'"),
    ],
)
def test_a_package_that_cannot_be_used_stops_the_start(name: str, value: str, why: str) -> None:
    """One line that names the entry point."""
    with pytest.raises(ExtensionError, match=rf"the placement plugin {name} \({value}\) cannot be used: {why}"):
        load_placement_plugins([EntryPoint(name, value, PLACEMENT_GROUP)])


def test_a_plugin_that_calls_itself_otherwise_is_refused() -> None:
    """Its answers would be another plugin's."""
    registry = load_placement_plugins([EntryPoint("Renamed", POINT.value, PLACEMENT_GROUP)])
    document = configuration(plugins={"multiPoint": {"enabled": [{"name": "Renamed"}]}})
    with pytest.raises(ConfigurationError, match="plugin 'Renamed' cannot be used: it calls itself 'Generation'"):
        read_profiles(document, registry)


def test_what_is_installed_is_found() -> None:
    """Without other packages these are the plugins of the kube-scheduler."""
    assert load_placement_plugins().keys() >= REGISTRY.keys()
