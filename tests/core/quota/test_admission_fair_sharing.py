"""Admission fair sharing: what is remembered of usage, and the order of workloads that follows from it."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.quota.admission_fair_sharing import (
    decayed,
    entry_penalty,
    forgotten,
    of_quantities,
    plus,
    scaled,
    shown,
)
from headgate.events.configuration import AdmissionFairSharingConfiguration, Configuration
from headgate.events.objects import AdmissionScope, ClusterQueueSpec

USAGE_BASED = ClusterQueueSpec(admission_scope=AdmissionScope(admission_mode="UsageBasedAdmissionFairSharing"))
NOT_USAGE_BASED = ClusterQueueSpec(admission_scope=AdmissionScope(admission_mode="NoAdmissionFairSharing"))

ROUNDING = Decimal(1) + Decimal("1e-15")


def configured(**settings: int) -> Configuration:
    return Configuration(admission_fair_sharing=AdmissionFairSharingConfiguration(**settings))  # type: ignore[arg-type]


amounts = st.dictionaries(
    st.sampled_from(["cpu", "memory", "gpu"]),
    st.decimals(min_value=0, max_value=10**12, places=9),
)
times_ms = st.integers(min_value=0, max_value=10**10)
half_lives_ms = st.integers(min_value=1, max_value=10**9)


@pytest.mark.parametrize(
    ("elapsed_ms", "half_life_ms", "share"),
    [(0, 10_000, 0.0), (10_000, 10_000, 0.5), (20_000, 10_000, 0.75), (5_000, 0, 0.0), (-5_000, 10_000, 0.0)],
)
def test_half_is_forgotten_in_a_half_life(elapsed_ms: int, half_life_ms: int, share: float) -> None:
    """A half-life of 0 means immediate decay elsewhere; as a share it is 0, as in Kueue."""
    assert forgotten(elapsed_ms, half_life_ms) == share


@given(times_ms, half_lives_ms)
def test_the_share_that_is_forgotten_is_one_whatever_the_machine(elapsed_ms: int, half_life_ms: int) -> None:
    """It is the double nearest to 1 - 0.5^(t/h), so within a rounding or two of what the platform's `pow` gives."""
    share = forgotten(elapsed_ms, half_life_ms)
    assert 0.0 <= share <= 1.0
    assert abs(share - (1.0 - 0.5 ** (elapsed_ms / half_life_ms))) < 1e-14


@given(amounts, amounts, times_ms, half_lives_ms)
def test_consumed_usage_is_never_negative(
    consumed: dict[str, Decimal], used: dict[str, Decimal], elapsed_ms: int, half_life_ms: int
) -> None:
    """Nor is it ever more, but for the rounding of a double, than the larger of what it was and what is in use."""
    after = decayed(consumed, used, elapsed_ms, half_life_ms)
    for resource, value in after.items():
        assert 0 <= value <= max(consumed.get(resource, Decimal(0)), used.get(resource, Decimal(0))) * ROUNDING


@given(amounts, half_lives_ms)
def test_unused_usage_decays_to_nothing(consumed: dict[str, Decimal], half_life_ms: int) -> None:
    """After a hundred half-lives not a billionth of it is left."""
    assert decayed(consumed, {}, 100 * half_life_ms, half_life_ms) == {}


@given(amounts, amounts, half_lives_ms)
def test_steady_usage_is_what_is_remembered_in_the_end(
    consumed: dict[str, Decimal], used: dict[str, Decimal], half_life_ms: int
) -> None:
    """Whatever was used before, a hundred half-lives later the past is forgotten."""
    assert decayed(consumed, used, 100 * half_life_ms, half_life_ms) == plus(used)


@given(amounts, times_ms, half_lives_ms)
def test_less_is_left_the_later_one_looks(consumed: dict[str, Decimal], elapsed_ms: int, half_life_ms: int) -> None:
    """Forgetting only goes one way."""
    soon, later = decayed(consumed, {}, elapsed_ms, half_life_ms), decayed(consumed, {}, elapsed_ms * 2, half_life_ms)
    assert all(later.get(resource, Decimal(0)) <= value for resource, value in soon.items())


def test_the_entry_penalty_is_what_a_sampling_interval_would_add() -> None:
    """1 - 0.5^(1 s / 10 s) of 4 cores and 1 GiB, rounded down to nine digits."""
    configuration = configured(usage_half_life_ms=10_000, usage_sampling_interval_ms=1_000)
    penalty = entry_penalty(configuration, USAGE_BASED, {"cpu": 4000, "memory": 2**30})
    assert penalty["cpu"] == "0.267868033"
    assert Decimal(penalty["memory"]) == scaled(Decimal(2**30), forgotten(1_000, 10_000))


@pytest.mark.parametrize(
    ("configuration", "spec"),
    [
        (Configuration(), USAGE_BASED),
        (configured(usage_half_life_ms=10_000), NOT_USAGE_BASED),
        (configured(usage_half_life_ms=10_000), ClusterQueueSpec()),
    ],
    ids=["off", "another mode", "no scope"],
)
def test_no_penalty_where_usage_does_not_count(configuration: Configuration, spec: ClusterQueueSpec) -> None:
    """Without the configuration, or in a ClusterQueue that does not order by usage, an admission costs nothing."""
    assert entry_penalty(configuration, spec, {"cpu": 4000}) == {}


def test_the_gate_switches_it_off() -> None:
    """`AdmissionFairSharing: false` in the feature gates counts more than the configuration."""
    fair = AdmissionFairSharingConfiguration(usage_half_life_ms=10_000)
    off = Configuration(admission_fair_sharing=fair, feature_gates={"AdmissionFairSharing": False})
    assert entry_penalty(off, USAGE_BASED, {"cpu": 4000}) == {}


@pytest.mark.parametrize(
    ("value", "quantity"),
    [("4", "4"), ("0.5", "500m"), ("1.267868033", "1267868033n"), ("0.000002", "2u"), ("0.000000000", "0")],
)
def test_consumed_amounts_are_shown_as_quantities(value: str, quantity: str) -> None:
    """In the largest of the small units that is whole; and they read back as what they were."""
    assert shown([("cpu", Decimal(value))]) == {"cpu": quantity}
    assert plus(of_quantities({"cpu": quantity})) == plus({"cpu": Decimal(value)})
