"""Whatever a client sends, it gets an answer in the API's own words, and the controllers continue."""

import copy
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.testing.cluster import Cluster, ControllerOptions

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "1", "-1", "x/y", "Never", "cpu"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "cpu", "key", "a"]), inner),
    max_leaves=6,
)
MEDIA = ["application/merge-patch+json", "application/strategic-merge-patch+json", "application/apply-patch+yaml"]
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "u"}
TEMPLATE = {
    "metadata": {"labels": {"a": "b"}, "annotations": {"headgate.dev/run-ms": "5"}},
    "spec": {
        "restartPolicy": "Never",
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule"}],
        "schedulingGates": [{"name": "g"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}]
                }
            }
        },
        "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}}],
    },
}
QUOTA = {"name": "cpu", "nominalQuota": "1", "borrowingLimit": "1"}
FLAVORS = [{"coveredResources": ["cpu"], "flavors": [{"name": "f", "resources": [QUOTA]}]}]
MANIFESTS = {
    "/api/v1/namespaces/default/pods": {"spec": TEMPLATE["spec"]},
    "/apis/batch/v1/namespaces/default/jobs": {"spec": {"parallelism": 1, "completions": 2, "template": TEMPLATE}},
    "/api/v1/nodes": {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}, "status": {"capacity": {"cpu": "4"}}},
    "/api/v1/namespaces/default/limitranges": {"spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}},
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets": {
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}
    },
    "/apis/kueue.x-k8s.io/v1beta2/clusterqueues": {"spec": {"cohortName": "c", "resourceGroups": FLAVORS}},
    "/apis/kueue.x-k8s.io/v1beta2/cohorts": {"spec": {"parentName": "p", "resourceGroups": FLAVORS}},
    "/apis/kueue.x-k8s.io/v1beta2/topologies": {"spec": {"levels": [{"nodeLabel": "a"}]}},
    "/apis/kueue.x-k8s.io/v1beta2/resourceflavors": {"spec": {"nodeLabels": {"a": "b"}, "topologyName": "t"}},
    "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads": {
        "spec": {"queueName": "q", "podSets": [{"name": "a", "count": 2, "minCount": 1, "template": TEMPLATE}]},
        "status": {"admission": {"clusterQueue": "c", "podSetAssignments": [{"name": "a", "count": 2}]}},
    },
}


def places(value, path=()):
    """The path of every part of a document."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def replaced(document, path, value):
    if not path:
        return value
    copied = copy.copy(document)
    copied[path[0]] = replaced(document[path[0]], path[1:], value)
    return copied


@pytest.mark.parametrize("path", MANIFESTS)
@settings(max_examples=30)
@given(data=st.data())
def test_every_body_gets_an_answer(path, data):
    """A manifest with any part replaced by anything is stored or refused with a Status, by every verb."""
    now = [0]
    cluster = Cluster(lambda: now[0], controllers=ControllerOptions(default_scheduler=True))
    metadata = {
        "name": "x",
        "labels": {"a": "b"},
        "annotations": {"a": "b"},
        "ownerReferences": [OWNER],
        "finalizers": ["a/b"],
    }
    manifest: dict[str, Any] = {"metadata": metadata, **cast("dict[str, Any]", MANIFESTS[path])}
    place = data.draw(st.sampled_from(sorted(places(manifest), key=repr)))
    broken = replaced(manifest, place, data.draw(JSON))
    responses = [cluster.request("POST", path, {}, broken), cluster.request("POST", path, {}, copy.deepcopy(manifest))]
    for suffix in ("", "/status"):
        responses.append(cluster.request("PUT", f"{path}/x{suffix}", {}, broken))
        responses += [
            cluster.request("PATCH", f"{path}/x{suffix}", {"fieldManager": "m", "force": "true"}, broken, media)
            for media in MEDIA
        ]
    for _ in range(20):
        cluster.step(now[0])
        now[0] = max(now[0], cluster.next_due_ms() or 0)
    responses.append(cluster.request("GET", path, accept="application/json;as=Table;v=v1;g=meta.k8s.io"))
    responses.append(cluster.request("DELETE", f"{path}/x", {}, broken))
    for response in responses:
        assert response.status < 500
        assert response.status < 400 or response.json()["kind"] == "Status"
