"""The language in which Kueue's fields are written, and what is rendered from it."""

import pytest

from headgate.adapters.kubernetes.crds.kinds import Kind
from headgate.adapters.kubernetes.crds.render import Spelling, node_schema
from headgate.adapters.kubernetes.crds.schema import Rule, compile_schemas

TEXT = """
Name: string (maxLen=63, pattern=label)
Thing: object
  spec: object
    size*: int32 (default=1, min=0)
    mode: string (enum=A|B, former={"Old":"A"})
    parts: []object (map=name, maxItems=4)
      name*: $Name
    extra: object (open)
      known: time
    once~: string (former="once is mode in v2")
"""
RULES = {
    "Thing.spec.parts[]": (Rule(rule="self.name != 'x'", message="x is taken"),),
    "Thing.spec": (Rule(rule="true", message="fine"),),
}


def rendered(spelling: Spelling = Spelling.CURRENT) -> dict:
    return node_schema(compile_schemas(TEXT, RULES)["Thing"], spelling)["properties"]["spec"]


def test_fields_have_the_types_bounds_and_defaults_that_are_written() -> None:
    """A line is a field of an OpenAPI schema."""
    spec = rendered()
    assert spec["required"] == ["size"]
    assert spec["properties"]["size"] == {"type": "integer", "format": "int32", "minimum": 0, "default": 1}
    assert spec["properties"]["mode"] == {"type": "string", "enum": ["A", "B"]}
    assert spec["properties"]["extra"] == {
        "type": "object",
        "properties": {"known": {"type": "string", "format": "date-time"}},
        "x-kubernetes-preserve-unknown-fields": True,
    }


def test_rules_stand_where_their_place_says() -> None:
    """At an object, at each item of a list; a shared type brings its own bounds along."""
    spec = rendered()
    assert spec["x-kubernetes-validations"] == [{"rule": "true", "message": "fine"}]
    parts = spec["properties"]["parts"]
    assert "x-kubernetes-validations" not in parts
    assert parts["items"]["x-kubernetes-validations"] == [{"rule": "self.name != 'x'", "message": "x is taken"}]
    assert parts["items"]["properties"]["name"]["maxLength"] == 63
    assert (parts["x-kubernetes-list-type"], parts["x-kubernetes-list-map-keys"]) == ("map", ["name"])


def test_former_fields_and_values_are_known_to_former_versions_only_to_be_refused() -> None:
    """The storage version does not have them; a former one names what to write instead."""
    assert "once" not in rendered()["properties"]
    spec = rendered(Spelling.REFUSING)["properties"]
    assert spec["once"]["x-kubernetes-validations"] == [{"rule": "self == ''", "message": "once is mode in v2"}]
    assert spec["mode"]["enum"] == ["A", "B", "Old"]
    assert spec["mode"]["x-kubernetes-validations"] == [{"rule": "self != 'Old'", "message": "Old is A in v1beta2"}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Thing object", "schema line is not `name: type \\(options\\)`"),
        ("Thing: $Other", "unknown type \\$Other"),
        ("Thing: string (longest=3)", "unknown schema option 'longest=3'"),
    ],
)
def test_what_is_not_in_the_language_is_refused(text: str, said: str) -> None:
    """With the words that are wrong."""
    with pytest.raises(ValueError, match=said):
        compile_schemas(text)


def test_a_rule_without_a_place_is_refused() -> None:
    """A rule for a field that was renamed must not vanish."""
    with pytest.raises(ValueError, match=r"not in the text: Thing.spec.part$"):
        compile_schemas(TEXT, {"Thing.spec.part": RULES["Thing.spec"]})


def test_a_kind_knows_its_names() -> None:
    """As they are in paths, manifests and messages."""
    kind = Kind(
        group="kueue.x-k8s.io", versions=("v1beta2", "v1beta1"), kind="Cohort", plural="cohorts", singular="cohort",
        namespaced=False, schema=compile_schemas(TEXT)["Thing"], subresources=("status",),
    )  # fmt: skip
    assert (kind.resource, kind.qualified, kind.api_version, kind.status_subresource) == (
        "cohorts.kueue.x-k8s.io", "Cohort.kueue.x-k8s.io", "kueue.x-k8s.io/v1beta2", True,
    )  # fmt: skip
