"""Hints with a key are asked once for equal pods, and say of each what they would say if they were asked for it."""

from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.placement import HOSTNAME, ZONE, Json, cluster_of, framework_of, node, pod

from headgate.core.placement.framework.events import ActionType, EventHint, EventResource
from headgate.core.placement.framework.plugin import EnqueueExtensions
from headgate.core.placement.pods import PodInfo

ADD_OR_DELETE = (ActionType.ADD, ActionType.DELETE)


def _spec(key: str, app: str) -> Json:
    selector = {"matchLabels": {"app": app}}
    constraint = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
    term = {"topologyKey": key, "labelSelector": selector}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
    return {
        "topologySpreadConstraints": [constraint],
        "affinity": {"podAffinity": required, "podAntiAffinity": required},
    }


_specs = st.tuples(st.sampled_from([ZONE, HOSTNAME]), st.sampled_from(["x", "y"])).map(lambda pair: _spec(*pair))
_pods = st.tuples(st.one_of(st.just({}), _specs), st.sampled_from(["x", "y"]), st.sampled_from(["", "a", "nominated"]))


def read(cluster: Any, name: str, drawn: tuple[Json, str, str]) -> PodInfo:
    spec, app, where = drawn
    made = pod(name, labels={"app": app}, spec=spec, on=where if where == "a" else "", cpu="1")
    made["status"] = {"nominatedNodeName": "a"} if where == "nominated" else {}
    info: PodInfo = cluster.shapes.read(made)
    return info


def keyed_hints(plugins: Any) -> list[EventHint]:
    """The hints of the default plugins for pods that come and go that are asked once for equal pods."""
    declared = [hint for each in plugins.values() if isinstance(each, EnqueueExtensions) for hint in each.events()]
    return [each for each in declared if each.resource == EventResource.POD and each.key is not None]


@given(waiting=_pods, changed=_pods, is_the_same=st.booleans())
@settings(max_examples=80)
def test_equal_pods_get_the_same_hint(
    waiting: tuple[Json, str, str], changed: tuple[Json, str, str], is_the_same: bool
) -> None:
    """Also where one of them is the pod that comes or goes: it is on its node, or has given up a nomination."""
    cluster = cluster_of(node("a", labels={ZONE: "z"}))
    framework = framework_of(cluster)
    hints = keyed_hints(framework.profile.plugins)
    assert len(hints) >= 3
    first = read(cluster, "first", (waiting[0], waiting[1], ""))
    other = read(cluster, "other", (waiting[0], waiting[1], ""))
    where = "a" if changed[2] == "" else changed[2]
    event = read(
        cluster, "changed", (waiting[0], waiting[1], where) if is_the_same else (changed[0], changed[1], where)
    )
    if is_the_same:
        event = msgspec.structs.replace(event, uid=first.uid, key=first.key)
    for each in hints:
        assert each.hint is not None
        assert each.key is not None
        assert each.key(first.shape) == each.key(other.shape)
        for action in ADD_OR_DELETE:
            if action & each.actions:
                old, new = (None, event) if action == ActionType.ADD else (event, None)
                assert each.hint(first, old, new, cluster) == each.hint(other, old, new, cluster)
