"""Options, fixtures and rules for all tests."""

from collections.abc import Generator

import pytest

from headgate.testing.control_plane import NoAssetsError


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--seeds` and `--first-seed` are of the whole-system simulations, `--chaos-...` of those that kill processes."""
    parser.addoption("--seeds", type=int, default=40, help="seeds of the whole-system simulations (default 40)")
    parser.addoption("--first-seed", type=int, default=0, help="the first of them, to run one again")
    parser.addoption("--chaos-seed", type=int, default=None, help="seed of the chaos runs (default: drawn, printed)")
    parser.addoption("--chaos-kills", type=int, default=20, help="how often each victim is killed (default 20)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `world_seed` runs once for each."""
    if "world_seed" in metafunc.fixturenames:
        first, count = metafunc.config.getoption("--first-seed"), metafunc.config.getoption("--seeds")
        metafunc.parametrize("world_seed", range(first, first + count))


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Everything asynchronous runs on asyncio: nats-py and aiohttp know nothing else."""
    return "asyncio"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None]:
    """A test whose fixtures lack a binary of the control plane is skipped, with the line that says which."""
    try:
        yield
    except NoAssetsError as error:
        pytest.skip(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """The same for a test that looks for one itself."""
    try:
        yield
    except NoAssetsError as error:
        pytest.skip(str(error))
