"""What quota counts instead of what pods request: excluded prefixes and transformations."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.workload.resource_transformations import transformed, without_excluded
from headgate.events.configuration import ResourceTransformation as Transformation

MIG, CUDA, MEMORY = "nvidia.com/mig-1g.5gb", "example.com/cuda-cores", "example.com/gpu-memory"


def requests(**amounts: int) -> dict[str, Fraction]:
    return {name: Fraction(amount) for name, amount in amounts.items()}


def test_resources_are_left_out_by_the_prefixes_of_their_names() -> None:
    """Any of the prefixes; without one nothing is left out."""
    asked = requests(cpu=1, memory=2, network=3)
    assert without_excluded(asked, ("net", "mem")) == {"cpu": 1}
    assert without_excluded(asked, ()) == asked


@pytest.mark.parametrize(
    ("asked", "transformations", "counted"),
    [
        pytest.param({MIG: 2}, [Transformation(input=MIG, outputs={CUDA: 14, MEMORY: "5Gi"})],
                     {MIG: 2, CUDA: 28, MEMORY: 10 << 30}, id="retained beside its outputs"),
        pytest.param({MIG: 2}, [Transformation(input=MIG, strategy="Replace", outputs={CUDA: 14})],
                     {CUDA: 28}, id="replaced by its outputs"),
        pytest.param({"cpu": 2}, [Transformation(input="cpu", strategy="Replace")], {}, id="replaced by nothing"),
        pytest.param({"cpu": 2}, [Transformation(input=MIG, outputs={CUDA: 1})], {"cpu": 2}, id="not requested"),
        pytest.param({MEMORY: 3, "gpu": 4},
                     [Transformation(input=MEMORY, strategy="Replace", multiply_by="gpu", outputs={"total": 2})],
                     {"gpu": 4, "total": 24}, id="times another request"),
        pytest.param({MEMORY: 3}, [Transformation(input=MEMORY, multiply_by="gpu", outputs={"total": 2})],
                     {MEMORY: 3, "total": 6}, id="times a resource that is not requested"),
        pytest.param({"a": 1, "b": 2, "c": 10},
                     [Transformation(input=name, strategy="Replace", outputs={"c": 3}) for name in "ab"],
                     {"c": 19}, id="outputs and a request add up"),
        pytest.param({"a": 5, "b": 2},
                     [Transformation(input="a", outputs={"c": 1}), Transformation(input="b", outputs={"c": -1})],
                     {"a": 5, "b": 2, "c": 3}, id="an allowance"),
        pytest.param({"a": 1, "b": 2, "c": 7},
                     [Transformation(input="a", outputs={"c": 1}), Transformation(input="b", outputs={"c": -1})],
                     {"a": 1, "b": 2, "c": 7}, id="an allowance takes nothing off what was requested"),
        pytest.param({"a": 2},
                     [Transformation(input="a", outputs={"b": 1}), Transformation(input="b", outputs={"c": 1})],
                     {"a": 2, "b": 2}, id="no transformation of an output"),
        pytest.param({"a": 2},
                     [Transformation(input="a", outputs={"b": 1}), Transformation(input="a", outputs={"c": 1})],
                     {"a": 2, "c": 2}, id="the later of one input"),
        pytest.param({"a": 3}, [Transformation(input="a", strategy="Replace", outputs={"b": "500m"})],
                     {"b": Fraction(3, 2)}, id="fractions are exact"),
    ],
)  # fmt: skip
def test_transformations_turn_requests_into_others(
    asked: dict[str, int], transformations: Sequence[Transformation], counted: dict[str, int]
) -> None:
    """Each as Kueue's documentation and code have it (KEP-2937)."""
    exact = {name: Fraction(amount) for name, amount in asked.items()}
    assert transformed(exact, transformations) == counted


_names = st.sampled_from("abcd")
_factors = st.integers(-20, 20).map(lambda tenths: f"{tenths * 100}m")
_transformations = st.builds(
    Transformation,
    input=_names,
    strategy=st.sampled_from(["Retain", "Replace"]),
    multiply_by=st.sampled_from(["", "a", "d", "e"]),
    outputs=st.dictionaries(st.sampled_from("abcdxyz"), _factors, max_size=3),
)


def _model(asked: dict[str, int], transformations: list[Transformation]) -> dict[str, Decimal]:
    """The same by listing every contribution, in decimals."""
    contributions: list[tuple[str, Decimal]] = []
    kept = dict.fromkeys(asked, True)
    for name, amount in asked.items():
        for each in reversed(transformations):
            if each.input != name:
                continue
            kept[name] = each.strategy == "Retain"
            times = asked.get(each.multiply_by, 1) if each.multiply_by else 1
            for output, factor in each.outputs.items():
                contributions.append((output, Decimal(amount) * times * Decimal(str(factor).removesuffix("m")) / 1000))
            break
    names = [name for name in asked if kept[name]] + [name for name, _ in contributions]
    return {
        name: (Decimal(asked[name]) if kept.get(name) else Decimal(0))
        + max(Decimal(0), sum((part for output, part in contributions if output == name), Decimal(0)))
        for name in names
    }


@given(st.dictionaries(_names, st.integers(0, 1000)), st.lists(_transformations, max_size=5))
def test_transformations_are_what_their_contributions_add_up_to(
    asked: dict[str, int], transformations: list[Transformation]
) -> None:
    """Against a list of contributions; in any order of the requests, and never below what is retained."""
    exact = {name: Fraction(amount) for name, amount in asked.items()}
    counted = transformed(exact, transformations)
    assert counted == {name: Fraction(amount) for name, amount in _model(asked, transformations).items()}
    assert transformed(dict(reversed(exact.items())), transformations) == counted
