"""
Under a seed's faults the log comes to hold what placement reads of the cluster, object for object.

Crashes, lists that are cut off, versions that are forgotten, and a start that is broken off are among them.
"""

import random
from typing import Any

import msgspec
import pytest
from tests.simulation.test_seeds import faults_of
from tests.support.playing import node

from headgate.core import fold
from headgate.core.machine.contract import Machine
from headgate.core.placement.objects.kinds import KINDS
from headgate.core.state.tables import State
from headgate.events.base import Producer
from headgate.machines.informer_bridge.decide import InformerBridge
from headgate.testing.cluster import BY_PLURAL
from headgate.testing.world.world import World

Json = dict[str, Any]
DOCUMENT: Json = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "headgate"}],
}
CHANGES = 60


def _claim(name: str, volume: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            **({"volumeName": volume} if volume else {}),
        },
    }


def _driver(name: str) -> Json:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": [{"name": "csi.example.com", "nodeID": name}]},
    }


def _pod(name: str, scheduler: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulerName": scheduler, "containers": [{"name": "c", "image": "i"}]},
    }


def _change(world: World, rng: random.Random) -> None:
    """Something is created, changed or deleted."""
    name = f"x{rng.randrange(5)}"
    kind = rng.choice(["nodes", "persistentvolumeclaims", "csinodes", "pods"])
    namespace = "default" if KINDS[kind].namespaced else ""
    served = BY_PLURAL[KINDS[kind].group, kind]
    exists = world.cluster.find(served, namespace, name) is not None
    if exists and rng.random() < 0.4:
        path = f"/apis/{served.group}/v1" if served.group else "/api/v1"
        path += f"/namespaces/{namespace}/{kind}/{name}" if namespace else f"/{kind}/{name}"
        assert world.cluster.request("DELETE", path).status < 300
    elif kind == "nodes":
        world.cluster.apply(node(name, cpu=str(rng.randrange(1, 9))))
    elif kind == "csinodes":
        world.cluster.apply(_driver(name))
    elif not exists:
        made = _pod(name, rng.choice(["headgate", "other"])) if kind == "pods" else _claim(name, rng.choice(["", "v"]))
        world.cluster.apply(made)


def _let_pass(world: World, ms: int) -> None:
    at_ms = world.clock.now_ms + ms
    while world.clock.now_ms < at_ms:
        world.run(until_ms=min(at_ms, world.clock.now_ms + 500))
        world.advance(min(at_ms, world.clock.now_ms + 500))


def _expected(world: World) -> dict[str, dict[str, msgspec.Raw]]:
    found: dict[str, dict[str, msgspec.Raw]] = {}
    for kind in KINDS.values():
        for each in world.cluster.objects(BY_PLURAL[kind.group, kind.plural]):
            meta = each["metadata"]
            key = f"{meta['namespace']}/{meta['name']}" if kind.namespaced else meta["name"]
            shown = kind.shown(msgspec.json.encode(each))
            if shown is not None:
                found.setdefault(kind.plural, {})[key] = shown
    return found


@pytest.mark.parametrize("seed", range(12))
def test_the_log_has_what_placement_reads(seed: int) -> None:
    """Turned on by the file of the bridge; no other process is needed for it."""

    def bridge(state: State) -> Machine:
        return InformerBridge(state, placing=DOCUMENT)

    world = World(seed=seed, faults=faults_of(seed), machines={Producer.INFORMER_BRIDGE: bridge})
    rng = random.Random(f"placement-{seed}")
    for _ in range(CHANGES):
        _change(world, rng)
        _let_pass(world, 1_000)
    _let_pass(world, 120_000)
    state = world.state
    assert state.scheduler_configuration == DOCUMENT
    assert state.objects == _expected(world)
    refolded = fold.new_state(world.cell)
    for logged in world.log:
        fold.apply(refolded, logged)
    assert refolded.objects == state.objects
