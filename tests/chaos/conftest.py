"""The seed of a chaos run, and how often it kills."""

import secrets

import pytest


@pytest.fixture(scope="session")
def chaos_seed(request: pytest.FixtureRequest) -> int:
    """`--chaos-seed`, or a new one, which is printed."""
    given = request.config.getoption("--chaos-seed")
    seed = int(given) if given is not None else secrets.randbelow(1_000_000)
    print(f"\nchaos seed {seed}: run again with `pytest -m chaos -s --chaos-seed {seed}`", flush=True)
    return seed


@pytest.fixture(scope="session")
def kills(request: pytest.FixtureRequest) -> int:
    """`--chaos-kills`."""
    return int(request.config.getoption("--chaos-kills"))
