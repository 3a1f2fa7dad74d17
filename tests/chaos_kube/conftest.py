"""What a fault run on the real control plane needs: its binaries, and a seed."""

import secrets

import pytest

from headgate.testing.control_plane import Assets, find_assets


@pytest.fixture(scope="session")
def assets() -> Assets:
    """The binaries."""
    return find_assets()


@pytest.fixture(scope="session")
def chaos_seed(request: pytest.FixtureRequest) -> int:
    """`--chaos-seed`, or a new one, which is printed."""
    given = request.config.getoption("--chaos-seed")
    seed = int(given) if given is not None else secrets.randbelow(1_000_000)
    print(f"\nchaos seed {seed}: run again with `make chaos-kube ARGS='--chaos-seed {seed}'`", flush=True)
    return seed
