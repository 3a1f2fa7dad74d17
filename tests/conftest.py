"""Options and fixtures for all tests."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--seeds N`: how many seeds the whole-system simulations run; `--first-seed K`: where they start."""
    parser.addoption("--seeds", type=int, default=40, help="seeds of the whole-system simulations (default 40)")
    parser.addoption("--first-seed", type=int, default=0, help="the first of them, to run one again")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `seed` runs once for each."""
    if "seed" in metafunc.fixturenames:
        first, count = metafunc.config.getoption("--first-seed"), metafunc.config.getoption("--seeds")
        metafunc.parametrize("seed", range(first, first + count))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Everything asynchronous runs on asyncio: nats-py and aiohttp know nothing else."""
    return "asyncio"
