"""
Devices for claims against recorded answers of k8s.io/dynamic-resource-allocation v0.36.3 (`tests/conformance/data`).

Each scenario has nodes, slices, classes, allocated claims and claims to allocate; per node the recorded allocation, or
error, and how many steps the search took. Selectors are CEL expressions with a device and what they evaluate to.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.core.kubernetes.quantities import parse_quantity
from headgate.core.placement.cluster import PlacementCluster
from headgate.core.placement.objects.devices import DeviceClass, ResourceClaim, ResourceSlice
from headgate.core.placement.objects.metadata import read
from headgate.core.placement.objects.nodes import NodeObject
from headgate.core.placement.plugins.dynamic_resources_allocator import DeviceAllocator
from headgate.core.placement.plugins.dynamic_resources_entries import DeviceEntry, SelectorError
from headgate.core.placement.plugins.dynamic_resources_index import DeviceIndex

DATA = Path(__file__).parent / "data" / "placement"

Json = dict[str, Any]


def records(name: str) -> Iterator[Json]:
    with gzip.open(DATA / f"{name}.jsonl.gz") as lines:
        yield from map(json.loads, lines)


def cluster_of(scenario: Json) -> PlacementCluster:
    """The cluster of a scenario. Names of slices repeat in some, which no API server would allow."""
    cluster = PlacementCluster()
    for kind, field in ((DeviceClass, "classes"), (ResourceSlice, "slices"), (ResourceClaim, "allocated")):
        for number, manifest in enumerate(scenario[field]):
            cluster.put(
                kind, f"{number}" if kind is not DeviceClass else manifest["metadata"]["name"], read(manifest, kind)
            )
    return cluster


def told(results: list[Json]) -> list[Json]:
    """Allocations to be compared: quantities by value, ids of shares by whether there is one, no empty fields."""
    plain: list[Json] = json.loads(json.dumps(results))
    for result in plain:
        devices = {name: value for name, value in result.get("devices", {}).items() if value}
        for device in devices.get("results", []):
            device["shareID"] = bool(device.get("shareID"))
            consumed = device.get("consumedCapacity", {})
            device["consumedCapacity"] = {name: str(parse_quantity(value)) for name, value in consumed.items()}
        result["devices"] = devices
    return plain


@pytest.mark.parametrize("name", ["devices", "devices_table"])
def test_claims_get_the_recorded_devices(name: str) -> None:
    """The same devices in the same order after the same number of steps, or an error where there was one."""
    for scenario in records(name):
        cluster = cluster_of(scenario)
        claims = [read(each, ResourceClaim) for each in scenario["claims"]]
        allocator = DeviceAllocator(cluster.index(DeviceIndex), cluster.objects(DeviceClass), claims, "pod")
        for node in scenario["nodes"]:
            recorded = scenario["answers"][node["metadata"]["name"]]
            here = read(node, NodeObject)
            answer = allocator.on(here)
            where = (scenario["name"], node["metadata"]["name"], answer.status)
            if recorded["error"] == "invalid resource pools were encountered":
                assert answer.status.message == recorded["error"], where
            elif recorded["error"]:
                assert not answer.status.is_success, where
                assert not answer.status.is_rejected, where
                allocator = DeviceAllocator(cluster.index(DeviceIndex), cluster.objects(DeviceClass), claims, "pod")
            else:
                ours = told([msgspec.to_builtins(each) for each in allocator.allocations(here)])
                assert ours == told(recorded.get("results", [])), where
                assert answer.steps == recorded["steps"], where


def test_selectors_select_the_recorded_devices() -> None:
    """A match, none, or an error."""
    for case in records("selectors"):
        device = {
            "name": "d",
            "attributes": case.get("attributes", {}),
            "capacity": case.get("capacity", {}),
            "allowMultipleAllocations": case.get("allowMultipleAllocations", False),
        }
        spec = {"driver": case["driver"], "pool": {"name": "p"}, "devices": [device]}
        piece = read({"metadata": {"name": "s"}, "spec": spec}, ResourceSlice)
        entry = DeviceEntry(piece, piece.spec.devices[0])
        if case.get("error") or case.get("compileError"):
            with pytest.raises(SelectorError):
                entry.matches(case["expression"])
        else:
            assert entry.matches(case["expression"]) == case["match"], case["expression"]
