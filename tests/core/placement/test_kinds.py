"""What the log has of a pod: less than its status says, and no less than is decided by."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.api.watched_kinds import KIND_OF
from headgate.core.placement.objects.kinds import KINDS, PODS
from headgate.core.placement.objects.metadata import read
from headgate.core.placement.objects.pods import PodObject
from headgate.core.placement.requests import requests_of

Json = dict[str, Any]
_quantities = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "2", "500m"]), max_size=2)
_resources = st.fixed_dictionaries({"requests": _quantities})


def _container(name: str) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(
        {"name": st.just(name), "resources": _resources}, optional={"restartPolicy": st.just("Always")}
    )


def _status(name: str) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(
        {"name": st.just(name)}, optional={"resources": _resources, "allocatedResources": _quantities}
    )


_pods = st.fixed_dictionaries(
    {
        "metadata": st.just({"name": "p", "namespace": "a"}),
        "spec": st.fixed_dictionaries(
            {
                "containers": _container("c").map(lambda each: [each]),
                "initContainers": st.lists(_container("i"), max_size=1),
            },
            optional={"resources": _resources},
        ),
        "status": st.fixed_dictionaries(
            {
                "phase": st.sampled_from(["Pending", "Running"]),
                "containerStatuses": _status("c").map(lambda each: [each]),
                "initContainerStatuses": st.lists(_status("i"), max_size=1),
                "conditions": st.sampled_from(
                    [[], [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}]]
                ),
            },
            optional={"resources": _resources, "allocatedResources": _quantities},
        ),
    }
)


@given(_pods)
def test_a_pod_requests_the_same_by_what_the_log_has_of_it(manifest: Json) -> None:
    """During a resize too, feasible or not (KEP-1287)."""
    shown = PODS.shown(msgspec.json.encode(manifest))
    assert shown is not None
    whole, kept = read(manifest, PodObject), PODS.read(shown)
    assert requests_of(kept.spec, kept.status) == requests_of(whole.spec, whole.status)


@given(_pods)
def test_what_the_log_has_of_a_pod_is_reduced_no_further(manifest: Json) -> None:
    """Byte by byte: an object that is shown again as it was makes no fact."""
    shown = PODS.shown(msgspec.json.encode(manifest))
    assert shown is not None
    assert PODS.shown(bytes(shown)) == shown


def test_a_kind_is_known_by_its_plural_and_by_its_name_among_the_watched_resources() -> None:
    """Facts have the plural, and what the bridge fails over has the name: quarantine takes both for one object."""
    for kind in KINDS.values():
        assert KIND_OF[kind.plural] == KIND_OF[kind.name] == kind.kind
