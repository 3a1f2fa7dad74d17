"""
v1beta1 and v1beta2 say the same: nothing is lost on the way from one to the other and back.

Objects are generated from the schemas of our CustomResourceDefinitions; manifests are those of the repository, and
Kueue's own where `make kube` has put them.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.adapters.kubernetes.crds.render import Conversion, custom_resource_definitions
from headgate.core.api.conversion import V1BETA1, V1BETA2
from headgate.core.topology.assignments import Domain, Placement, expand
from headgate.core.topology.encoding import compressed
from headgate.core.versions.converting import KEPT, convert, convert_review
from headgate.events.objects import TopologyAssignment
from headgate.testing.control_plane.assets import Assets, cache_folder
from headgate.testing.control_plane.samples import named_samples, released_samples

Json = dict[str, Any]

DEFINITIONS = {each["spec"]["names"]["kind"]: each for each in custom_resource_definitions(Conversion())}
KINDS = sorted(DEFINITIONS)
OTHER = {V1BETA1: V1BETA2, V1BETA2: V1BETA1}
REPOSITORY = Path(__file__).parents[3]


def schema(kind: str, version: str) -> Json:
    versions = DEFINITIONS[kind]["spec"]["versions"]
    found: Json = next(each for each in versions if version.endswith(each["name"]))["schema"]["openAPIV3Schema"]
    return found


# --- generated objects -----------------------------------------------------------------------------------------------

WORDS = st.sampled_from(["a", "b", "team", "gpu-1", "x.example.com"])
PLACEMENTS = st.integers(1, 2).flatmap(
    lambda levels: st.builds(
        Placement,
        st.just(("block", "kubernetes.io/hostname")[-levels:]),
        st.lists(
            st.builds(Domain, st.tuples(*[st.sampled_from(["n-1", "n-2", "m-1"])] * levels), st.integers(1, 3)),
            max_size=4,
        ).map(tuple),
    )
)


def assignment(version: str) -> st.SearchStrategy[Json]:
    """Domains and slices are not free of each other: they are made of one placement."""
    if version == V1BETA1:
        return PLACEMENTS.map(
            lambda each: {
                "levels": list(each.levels),
                "domains": [{"values": list(domain.values), "count": domain.pods} for domain in each.domains],
            }
        )
    encoded = st.builds(lambda each, by: compressed(each, by_hostname_prefix=by), PLACEMENTS, st.booleans())
    return encoded.map(lambda each: msgspec.json.decode(msgspec.json.encode(each)))


CLASSES = [
    {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "a"},
    {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": "b"},
]
"""A rule of the definition allows no other pairs of group and kind."""


def values(node: Json, version: str, name: str = "") -> st.SearchStrategy[Any]:
    """Whatever a schema accepts; texts and lists are not empty, for v1beta1 means nothing by an empty one."""
    if name == "topologyAssignment":
        return assignment(version)
    if name == "priorityClassRef":
        return st.sampled_from(CLASSES)
    if "enum" in node:
        return st.sampled_from([each for each in node["enum"] if each])
    if "x-kubernetes-int-or-string" in node:
        return st.sampled_from(["1", "500m", "2Gi", 3])
    match node.get("type"):
        case "object" if "properties" in node:
            fields = {key: values(each, version, key) for key, each in node["properties"].items()}
            needed = node.get("required", [])
            return st.fixed_dictionaries(
                {key: fields[key] for key in needed},
                optional={key: each for key, each in fields.items() if key not in needed},
            )
        case "object":
            return st.dictionaries(WORDS, values(node.get("additionalProperties", {}), version), max_size=2)
        case "array":
            return st.lists(values(node["items"], version), min_size=1, max_size=2)
        case "integer":
            return st.integers(node.get("minimum", 0), 9)
        case "boolean":
            return st.booleans()
        case _:
            return WORDS


def objects(version: str) -> st.SearchStrategy[Json]:
    """Objects of any of Kueue's kinds in one version, with annotations of their own or none."""

    def of(kind: str) -> st.SearchStrategy[Json]:
        properties = schema(kind, version)["properties"]
        parts = {name: values(each, version) for name, each in properties.items() if name not in META}
        metadata = {"name": WORDS, "uid": WORDS}
        annotations = st.dictionaries(WORDS, WORDS, min_size=1, max_size=2)
        return st.fixed_dictionaries(
            {
                "apiVersion": st.just(version),
                "kind": st.just(kind),
                "metadata": st.fixed_dictionaries(metadata, optional={"annotations": annotations}),
            },
            optional=parts,
        )

    return st.sampled_from(KINDS).flatmap(of)


META = {"apiVersion", "kind", "metadata"}


def unknown(node: Json, value: Any, path: str = "") -> list[str]:
    """The fields of a value that the API server would drop, because the schema does not have them."""
    if isinstance(value, list):
        return [each for item in value for each in unknown(node.get("items", {}), item, path + "[]")]
    if not isinstance(value, dict) or node.get("x-kubernetes-preserve-unknown-fields"):
        return []
    fields = node.get("properties", {})
    values = node.get("additionalProperties")
    found = []
    for key, each in value.items():
        if key in fields:
            found += unknown(fields[key], each, f"{path}.{key}")
        elif values is None and path != ".metadata":
            found.append(f"{path}.{key}")
    return found


def with_domains(obj: Json) -> Json:
    """An object whose topology assignments of v1beta2 are lists of domains: one list has several encodings."""
    obj = copy.deepcopy(obj)
    for each in ((obj.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ():
        topology = each.get("topologyAssignment")
        if topology is not None and "slices" in topology:
            each["topologyAssignment"] = expand(msgspec.convert(topology, TopologyAssignment))
    return obj


@pytest.mark.parametrize("version", OTHER)
@settings(max_examples=80)
@given(data=st.data())
def test_an_object_is_the_same_after_the_other_version(version: str, data: st.DataObject) -> None:
    """Every kind, every field of both schemas, those that only one version has among them."""
    obj = data.draw(objects(version))
    before = copy.deepcopy(obj)
    there = convert(obj, OTHER[version])
    assert obj == before
    assert with_domains(convert(there, version)) == with_domains(obj)


@pytest.mark.parametrize("version", OTHER)
@settings(max_examples=60)
@given(data=st.data())
def test_a_converted_object_has_only_fields_of_its_version(version: str, data: st.DataObject) -> None:
    """The API server drops others, so that they would be lost; and name, uid and labels are as they were."""
    obj = data.draw(objects(version))
    there = convert(obj, OTHER[version])
    assert unknown(schema(obj["kind"], OTHER[version]), there) == []
    assert there["apiVersion"] == OTHER[version]
    assert {**there["metadata"], "annotations": None} == {**obj["metadata"], "annotations": None}


@settings(max_examples=20)
@given(data=st.data())
def test_fields_that_nobody_knows_are_kept(data: st.DataObject) -> None:
    """Of a later version of the API, or of somebody else: in the object, its spec and its status."""
    for version, other in OTHER.items():
        obj = data.draw(objects(version))
        extended = {**obj, "extra": {"a": 1}}
        parts = [part for part in ("spec", "status") if part in obj]
        for part in parts:
            extended[part] = {**obj[part], "unheardOf": [{"b": 2}]}
        there = convert(extended, other)
        assert there["extra"] == {"a": 1}
        assert all(there[part]["unheardOf"] == [{"b": 2}] for part in parts)
        assert with_domains(convert(there, version)) == with_domains(extended)


# --- manifests -------------------------------------------------------------------------------------------------------


def manifests(folder: Path, *folders: str) -> list[Json]:
    files = [file for each in folders for file in sorted((folder / each).rglob("*.yaml"))]
    found = []
    for file in files:
        try:
            documents = list(yaml.safe_load_all(file.read_text()))
        except yaml.YAMLError:
            continue  # a template of Kueue's performance suite, which is filled in there
        found += [each for each in documents if isinstance(each, dict) and each.get("apiVersion") in OTHER]
    return found


def test_the_examples_are_the_same_after_v1beta1() -> None:
    """Every manifest of the repository."""
    found = manifests(REPOSITORY, "examples", "deploy/demo")
    assert len(found) > 20
    for obj in found:
        there = convert(obj, OTHER[obj["apiVersion"]])
        assert unknown(schema(obj["kind"], OTHER[obj["apiVersion"]]), there) == []
        assert convert(there, obj["apiVersion"]) == obj


def test_kueues_samples_are_the_same_after_the_other_version() -> None:
    """Every manifest of its module, in the version that it is written in."""
    folder = Assets(cache_folder(), "the cache").kueue_samples()
    found = [each for each in manifests(folder, ".") if each["kind"] in DEFINITIONS]
    assert len(found) > 5
    for obj in found:
        assert convert(convert(obj, OTHER[obj["apiVersion"]]), obj["apiVersion"]) == obj


@pytest.mark.parametrize("which", [released_samples, named_samples])
def test_kueues_documented_samples_are_the_same_after_the_other_version(which: Callable[[], Path | None]) -> None:
    """Every object of Kueue's API in its documentation that has no fields but those of its version."""
    folder = which()
    if folder is None:
        pytest.skip("HEADGATE_SAMPLES names no folder")
    known = [each for each in manifests(folder, ".") if each["kind"] in DEFINITIONS]
    found = [each for each in known if not unknown(schema(each["kind"], each["apiVersion"]), each)]
    assert len(found) > 5
    for obj in found:
        assert convert(convert(obj, OTHER[obj["apiVersion"]]), obj["apiVersion"]) == obj


# --- what v1beta2 cannot express -------------------------------------------------------------------------------------


def of(kind: str, version: str = V1BETA1, **parts: Any) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, **parts}


CHECKS = of("ClusterQueue", spec={"admissionChecks": ["a"], "flavorFungibility": {"whenCanBorrow": "Borrow"}})


def test_what_only_v1beta1_expresses_is_in_an_annotation_of_v1beta2() -> None:
    """By path, and gone in v1beta1; v1beta2 has what Kueue makes of it."""
    there = convert(CHECKS, V1BETA2)
    assert there["spec"] == {
        "admissionChecksStrategy": {"admissionChecks": [{"name": "a"}]},
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch"},
    }
    assert msgspec.json.decode(there["metadata"]["annotations"][KEPT]) == {
        "spec.admissionChecks": ["a"],
        "spec.admissionChecksStrategy": None,
        "spec.flavorFungibility.whenCanBorrow": "Borrow",
    }


def test_a_change_in_v1beta2_is_seen_in_v1beta1() -> None:
    """What was kept of a field is used no more when v1beta2 says something else by now; other fields keep theirs."""
    there = convert(CHECKS, V1BETA2)
    there["spec"]["admissionChecksStrategy"]["admissionChecks"].append({"name": "b", "onFlavors": ["f"]})
    assert convert(there, V1BETA1) == of(
        "ClusterQueue",
        spec={
            "admissionChecksStrategy": {"admissionChecks": [{"name": "a"}, {"name": "b", "onFlavors": ["f"]}]},
            "flavorFungibility": {"whenCanBorrow": "Borrow"},
        },
    )


@pytest.mark.parametrize(
    "written",
    ["{", "[]", '{"spec.priorityClassSource":7}', '{"spec.priorityClassName":{"a":1}}', '{"spec.podSets":[]}'],
)
def test_an_annotation_that_somebody_wrote_changes_no_other_field(written: str) -> None:
    """Whatever it holds, v1beta1 says what v1beta2 says."""
    reference = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"}
    obj = of("Workload", V1BETA2, spec={"priorityClassRef": reference, "podSets": [{"name": "main"}]})
    obj["metadata"]["annotations"] = {KEPT: written}
    assert convert(obj, V1BETA1) == of(
        "Workload",
        spec={
            "podSets": [{"name": "main"}],
            "priorityClassName": "high",
            "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
        },
    )


def test_an_empty_field_of_v1beta1_means_what_an_absent_one_means() -> None:
    """Kueue's own clients write an empty source: no Workload gets an annotation for it."""
    assert convert(of("Workload", spec={"priorityClassSource": ""}), V1BETA2) == of("Workload", V1BETA2, spec={})


# --- reviews ---------------------------------------------------------------------------------------------------------


def review(version: str, *objects: Json) -> Json:
    request = {"uid": "705ab4f5", "desiredAPIVersion": version, "objects": list(objects)}
    return {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}


def test_a_review_is_answered_with_every_object_in_its_place() -> None:
    """In the version that is asked for, under the uid of the request; one that is in it already is left alone."""
    objects = [of("Cohort", V1BETA2, spec={"parentName": "root"}), CHECKS]
    assert convert_review(review(V1BETA2, *objects)) == {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "ConversionReview",
        "response": {
            "uid": "705ab4f5",
            "result": {"status": "Success"},
            "convertedObjects": [objects[0], convert(CHECKS, V1BETA2)],
        },
    }


BAD_DOMAINS = {"levels": ["block"], "domains": [{"values": ["a", "b"], "count": 1}]}


@pytest.mark.parametrize(
    ("version", "obj", "said"),
    [
        (
            V1BETA2,
            of("Workload", status={"admission": {"podSetAssignments": [{"topologyAssignment": BAD_DOMAINS}]}}),
            "Workload x: status.admission.podSetAssignments.topologyAssignment.domains: "
            "each domain needs one value a level",
        ),
        (
            "kueue.x-k8s.io/v1",
            of("Cohort"),
            "Cohort x: apiVersion: no conversion from 'kueue.x-k8s.io/v1beta1' to 'kueue.x-k8s.io/v1'",
        ),
        (
            V1BETA2,
            of("Cohort", "kueue.x-k8s.io/v1alpha1"),
            "Cohort x: apiVersion: no conversion from 'kueue.x-k8s.io/v1alpha1' to 'kueue.x-k8s.io/v1beta2'",
        ),
    ],
)
def test_an_object_that_cannot_be_converted_fails_its_review_with_its_name(version: str, obj: Json, said: str) -> None:
    """The API server shows the message to whoever wrote it."""
    response = convert_review(review(version, obj))["response"]
    assert response == {"uid": "705ab4f5", "convertedObjects": [], "result": {"status": "Failure", "message": said}}


def test_a_body_that_is_no_review_is_refused() -> None:
    """Another kind, or nothing asked for."""
    for body in ({"kind": "AdmissionReview", "request": {}}, {"kind": "ConversionReview"}):
        with pytest.raises(ValueError, match="expected a ConversionReview"):
            convert_review(body)
