"""Options, fixtures and rules for all tests."""

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from headgate.testing.control_plane import NoAssetsError

OWN_PLANE = ("tests/kube/e2e/test_samples.py", "tests/kube/e2e/test_kueue_and_back.py")
"""Files with a control plane of their own in a folder whose others share one."""

SAMPLE = 5
"""One seed of so many is enough where a test needs a sample."""

# The duration of an example depends on the machine, not on the code.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_addoption(parser: pytest.Parser) -> None:
    """
    The options of a test run.

    `--seeds` and `--first-seed` are of the whole-system simulations, `--fuzz...` of the fuzzer's runs, `--defect-jobs`
    of those with a planted defect, `--chaos-...` of the tests that kill processes.
    """
    parser.addoption("--seeds", type=int, default=40, help="seeds of the whole-system simulations (default 40)")
    parser.addoption("--first-seed", type=int, default=0, help="the first of them, to run one again")
    parser.addoption("--fuzz", type=int, default=200, help="runs of the fuzzer (default 200)")
    parser.addoption("--fuzz-first", type=int, default=0, help="the seed of the first of them, to run one again")
    parser.addoption("--corruptions", type=int, default=104, help="random damages to a cell's stores (default 104)")
    parser.addoption("--defect-jobs", type=int, default=60, help="jobs of a run with a planted defect (default 60)")
    parser.addoption("--chaos-seed", type=int, default=None, help="seed of the chaos runs (default: drawn, printed)")
    parser.addoption("--chaos-kills", type=int, default=20, help="how often each victim is killed (default 20)")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """
    Run a test that takes `world_seed` once for each seed.

    One that takes `sampled_seed` runs for the first fifth of them, one that takes `verified_seed` for the first fifth
    of that. One that takes `fuzz_seed` runs once for each run of the fuzzer.

    The former are the runs of the whole system with faults against those without. The latter cost several times as
    much, or add to what the former show; a longer run of them is `--seeds` with a larger number.
    """
    first, count = metafunc.config.getoption("--first-seed"), metafunc.config.getoption("--seeds")
    if "fuzz_seed" in metafunc.fixturenames:
        first_run = metafunc.config.getoption("--fuzz-first")
        metafunc.parametrize("fuzz_seed", range(first_run, first_run + metafunc.config.getoption("--fuzz")))
    if "world_seed" in metafunc.fixturenames:
        metafunc.parametrize("world_seed", range(first, first + count))
    if "corruption_seed" in metafunc.fixturenames:
        metafunc.parametrize("corruption_seed", range(first, first + metafunc.config.getoption("--corruptions")))
    if "verified_seed" in metafunc.fixturenames:
        metafunc.parametrize("verified_seed", range(first, first + -(-count // (SAMPLE * SAMPLE))))
    if "sampled_seed" in metafunc.fixturenames:
        metafunc.parametrize("sampled_seed", range(first, first + -(-count // SAMPLE)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """
    With `--dist loadfile`, one of several workers runs all that share a control plane, and starts it.

    In `tests/kube` and in `OWN_PLANE` those are the tests of a file, elsewhere those of a folder. xdist's own groups do
    not work here: it writes them into node ids, which pytest 9 no longer lets it change, and reports no error.
    """
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class ByControlPlane(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            folder = file.rpartition("/")[0]
            return file if folder == "tests/kube" or file in OWN_PLANE else folder

    return ByControlPlane(config, log)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Everything asynchronous runs on asyncio: nats-py and aiohttp know nothing else."""
    return "asyncio"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None]:
    """A test whose fixtures lack a binary of the control plane is skipped, with a line that names it."""
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
