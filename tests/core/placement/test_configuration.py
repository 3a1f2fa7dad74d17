"""KubeSchedulerConfiguration: Go's rules of merging and expanding plugins, and one clear error for what is wrong."""

from typing import Any

import pytest
from tests.support.placement import Json

from headgate.core.config.fields import ConfigurationError
from headgate.core.placement.configuration.profiles import read_profiles
from headgate.core.placement.framework.plugin import PluginFactory, Reads
from headgate.core.placement.framework.profile import Profile
from headgate.core.placement.framework.status import SUCCESS
from headgate.core.placement.plugins.registry import REGISTRY


class Everywhere:
    """A plugin of another package that filters and scores."""

    name = "Everywhere"
    filter_reads = score_reads = Reads.NODE

    def filter(self, cycle: Any, node: Any) -> Any:
        return SUCCESS

    def score(self, cycle: Any, node: Any) -> int:
        return 1


PLUGINS = {**REGISTRY, "Everywhere": PluginFactory("Everywhere", lambda _: Everywhere())}


def document(*profiles: Json, **fields: Any) -> Json:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": list(profiles),
        **fields,
    }


def profile_of(**plugins: Json) -> Profile:
    """The profile with these plugin sets."""
    return read_profiles(document({"plugins": plugins}), PLUGINS).by_name["default-scheduler"]


DEFAULT = profile_of()


def enabled(*names: str, **weights: int) -> Json:
    plain = [{"name": name} for name in names]
    return {"enabled": plain + [{"name": name, "weight": weight} for name, weight in weights.items()]}


def test_a_file_without_profiles_has_the_default_one() -> None:
    """Its name, backoffs and percentage are Kubernetes' defaults, and so is everything when there is no file."""
    for given in (None, document()):
        profiles = read_profiles(given, REGISTRY)
        assert list(profiles.by_name) == ["default-scheduler"]
        assert (profiles.initial_backoff_s, profiles.max_backoff_s, profiles.percentage_of_nodes_to_score) == (1, 10, 0)


def test_a_default_that_is_enabled_again_keeps_its_place_with_the_new_weight() -> None:
    """Under multiPoint."""
    profile = profile_of(multiPoint=enabled(NodeAffinity=7))
    assert profile.points == DEFAULT.points
    assert profile.weights == {**DEFAULT.weights, "NodeAffinity": 7}


def test_another_plugin_is_appended_at_every_point_that_it_takes_part_in() -> None:
    """Under multiPoint: behind the defaults, with weight 1."""
    profile = profile_of(multiPoint=enabled("Everywhere"))
    assert profile.points["filter"] == (*DEFAULT.points["filter"], "Everywhere")
    assert profile.points["score"] == (*DEFAULT.points["score"], "Everywhere")
    assert profile.points["preFilter"] == DEFAULT.points["preFilter"]
    assert profile.weights["Everywhere"] == 1


def test_the_plugins_of_a_point_come_before_those_that_multi_point_adds_if_both_name_them() -> None:
    """And behind them otherwise; the weight of the point counts."""
    profile = profile_of(
        score=enabled("Everywhere", ImageLocality=9, TaintToleration=4), multiPoint=enabled(ImageLocality=2)
    )
    others = [name for name in DEFAULT.points["score"] if name not in ("ImageLocality", "TaintToleration")]
    assert list(profile.points["score"]) == ["ImageLocality", "TaintToleration", *others, "Everywhere"]
    assert profile.weights["ImageLocality"] == 9


def test_what_is_disabled_at_a_point_is_left_out_there_alone() -> None:
    """By name."""
    profile = profile_of(filter={"disabled": [{"name": "TaintToleration"}]})
    assert profile.points["filter"] == tuple(name for name in DEFAULT.points["filter"] if name != "TaintToleration")
    assert profile.points["score"] == DEFAULT.points["score"]


def test_a_star_disables_all_but_what_is_enabled_there() -> None:
    """At a point, and under multiPoint."""
    profile = profile_of(score={"disabled": [{"name": "*"}], **enabled("ImageLocality")})
    assert profile.points["score"] == ("ImageLocality",)
    bare = profile_of(
        multiPoint={"disabled": [{"name": "*"}], **enabled("PrioritySort", "DefaultBinder", "NodeName")},
    )
    assert dict(bare.points) == {
        "queueSort": ("PrioritySort",),
        "filter": ("NodeName",),
        "bind": ("DefaultBinder",),
    }


def test_leader_election_and_client_limits_are_accepted() -> None:
    """They are without effect."""
    read_profiles(
        document(
            leaderElection={"leaderElect": True, "leaseDuration": "30s", "resourceName": "mine"},
            clientConnection={"qps": 100, "burst": 200, "kubeconfig": "/etc/kubernetes/scheduler.conf"},
            parallelism=32,
            enableProfiling=False,
        ),
        REGISTRY,
    )


FIT = "profiles[0].pluginConfig[0].args"


def fit(**arguments: Any) -> Json:
    return document({"pluginConfig": [{"name": "NodeResourcesFit", "args": arguments}]})


ERRORS: list[tuple[Json, str]] = [
    ({**document(), "apiVersion": "kubescheduler.config.k8s.io/v1beta3"}, r"apiVersion: .*is not known: write kubesch"),
    ({**document(), "kind": "Configuration"}, "kind: 'Configuration' is not known"),
    (document(parallelism=0), "parallelism: 0 cannot be"),
    (document(percentageOfNodesToScore=101), "percentageOfNodesToScore: 101 cannot be: write a number from 0 to 100"),
    (document(podInitialBackoffSeconds=20), "podMaxBackoffSeconds: 10 is less than podInitialBackoffSeconds"),
    (document(profilez=[]), r"profilez: there is no such field: did you mean 'profiles'\?"),
    (document({"plugin": {}}), r"profiles\[0\]\.plugin: there is no such field: did you mean 'plugins'\?"),
    (
        document({"schedulerName": "a"}, {"schedulerName": "a"}),
        r"profiles\[1\]\.schedulerName: 'a' is that of profiles",
    ),
    (document({"schedulerName": "a"}, {}), r"profiles\[1\]\.schedulerName: it is missing"),
    (document({"plugins": {"filter": enabled("NodeNam")}}), r"plugins\.filter\.enabled\[0\]\.name: there is no plugin"),
    (document({"plugins": {"filter": enabled("EBSLimits")}}), "enable NodeVolumeLimits instead"),
    (document({"plugins": {"filter": enabled("ImageLocality")}}), "does not extend filter"),
    (document({"plugins": {"score": enabled("Everywhere", "Everywhere")}}), "is enabled twice"),
    (document({"plugins": {"bind": {"disabled": [{"name": "*"}]}}}), r"plugins\.bind: no plugin is enabled"),
    (document({"plugins": {"queueSort": {"disabled": [{"name": "*"}]}}}), "0 plugins are enabled: enable exactly one"),
    (document({"plugins": {"score": enabled(ImageLocality=2**60)}}), "the total of the weights is too high"),
    (document({"pluginConfig": [{"name": "NodeFit"}]}), "there is no plugin 'NodeFit'"),
    (document({"pluginConfig": [{"name": "NodeName", "args": {"a": 1}}]}), "plugin 'NodeName' has no arguments"),
    (fit(scoringStrateg={}), r"args\.scoringStrateg: there is no such field: did you mean 'scoringStrategy'\?"),
    (fit(scoringStrategy={"type": "Best"}), r"scoringStrategy\.type: 'Best' is not supported"),
    (fit(scoringStrategy={"type": "RequestedToCapacityRatio"}), r"requestedToCapacityRatio: it is missing"),
    (fit(scoringStrategy={"resources": [{"name": "cpu", "weight": 101}]}), r"resources\[0\]\.weight: 101 cannot be"),
    (fit(ignoredResourceGroups=["a/b"]), r"ignoredResourceGroups\[0\]: it has a '/'"),
    (document(extenders=[{"urlPrefix": "http://x", "prioritizeVerb": "p"}]), r"extenders\[0\]\.weight: 0 cannot be"),
    (document(extenders=[{"urlPrefix": "http://x", "httpTimeout": "5"}]), r"extenders\[0\]\.httpTimeout: '5' is not"),
    (document(leaderElection={"leaderElect": True, "resourceLock": "endpoints"}), "write leases"),
    (document(parallelism="many"), "parallelism: Expected `int`, got `str`"),
]


@pytest.mark.parametrize(("given", "message"), ERRORS)
def test_what_is_wrong_is_one_error_that_names_the_field(given: Json, message: str) -> None:
    """Fields, plugins, arguments, values."""
    with pytest.raises(ConfigurationError, match=message):
        read_profiles(given, PLUGINS)


def test_a_resource_without_weight_has_weight_one() -> None:
    """And a strategy without resources scores cpu and memory."""
    given = {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "example.com/gpu"}]}}
    read = read_profiles(fit(**given), REGISTRY).by_name["default-scheduler"].arguments["NodeResourcesFit"]
    assert [(each.name, each.weight) for each in read.scoring_strategy.resources] == [("example.com/gpu", 1)]  # type: ignore[union-attr]
    read = read_profiles(fit(), REGISTRY).by_name["default-scheduler"].arguments["NodeResourcesFit"]
    assert [(each.name, each.weight) for each in read.scoring_strategy.resources] == [("cpu", 1), ("memory", 1)]  # type: ignore[union-attr]
