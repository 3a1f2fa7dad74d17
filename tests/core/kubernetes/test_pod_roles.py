"""The role of a pod: equal to the hash that Go's encoder gives for the typed parts of its spec (Kueue v0.19.2)."""

import json
import random
from typing import Any

import pytest

from headgate.core.kubernetes.pod_roles import role_hash

# Computed with Go 1.26 and k8s.io/api v0.36.3 from the same JSON.
PLAIN = '{"containers":[{"name":"c","image":"x","resources":{"requests":{"cpu":"1","memory":"200Mi"}}}]}'
WHOLE = """{"containers":[{"name":"c","resources":{"requests":{"memory":"200Mi","cpu":"500m"},"limits":{"cpu":"1"}},
"ports":[{"containerPort":80,"name":"web","protocol":"TCP"}]}],"initContainers":[{"name":"i","resources":{}}],
"nodeSelector":{"b":"2","a":"1"},"priority":0,"runtimeClassName":"gvisor","overhead":{"cpu":"10m"},
"tolerations":[{"effect":"NoExecute","key":"node.kubernetes.io/not-ready","operator":"Exists","tolerationSeconds":300}],
"affinity":{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"podAffinityTerm":{
"topologyKey":"zone","labelSelector":{"matchExpressions":[{"operator":"In","values":["x<y"],"key":"app"}],
"matchLabels":{"z":"1","b":"&"}}},"weight":5}]},"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":
{"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["n"]}],
"matchExpressions":[{"values":["a"],"operator":"In","key":"k"}]}]}}},
"topologySpreadConstraints":[{"labelSelector":{"matchLabels":{"a":"b"}},"whenUnsatisfiable":"DoNotSchedule",
"topologyKey":"zone","maxSkew":1}],"resources":{"requests":{"cpu":"2"}},
"resourceClaims":[{"resourceClaimTemplateName":"t","name":"g"}]}"""
EMPTY_PARTS = """{"containers":[{"name":"a","resources":{"requests":{}},"ports":[]}],"nodeSelector":{},"affinity":{},
"tolerations":[],"resources":{}}"""


@pytest.mark.parametrize(("spec", "expected"), [(PLAIN, "e7f6e8e6"), (WHOLE, "6ae87629"), (EMPTY_PARTS, "89f8a35e")])
def test_role_equals_the_one_of_the_reference(spec: str, expected: str) -> None:
    """Field order, escaping, missing and empty parts are as Go encodes them."""
    assert role_hash(json.loads(spec)) == expected


def _shuffled(value: Any, rng: random.Random) -> Any:
    if isinstance(value, list):
        return [_shuffled(each, rng) for each in value]
    if isinstance(value, dict):
        items = [(key, _shuffled(each, rng)) for key, each in value.items()]
        rng.shuffle(items)
        return dict(items)
    return value


@pytest.mark.parametrize("seed", range(20))
def test_role_does_not_depend_on_the_order_of_fields(seed: int) -> None:
    """A client may send the fields of a pod in any order."""
    assert role_hash(_shuffled(json.loads(WHOLE), random.Random(seed))) == "6ae87629"


@pytest.mark.parametrize("change", [{"image": "other"}, {"resources": {"limits": {"cpu": "9"}}}])
def test_role_depends_on_what_admission_depends_on_only(change: dict[str, Any]) -> None:
    """Images and limits are no part of it; requests are."""
    spec = {"containers": [{"name": "c", "resources": {}}]}
    changed = {"containers": [{**spec["containers"][0], **change}]}
    assert role_hash(spec) == role_hash(changed)
    requested = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
    assert role_hash(spec) != role_hash(requested)
