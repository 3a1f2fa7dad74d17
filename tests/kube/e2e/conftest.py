"""
Headgate as it is deployed: on a real control plane with the RBAC of deploy, each process with its token and NATS user.

One control plane serves all tests of this folder; each test has a namespace and a cell (a log) of its own, and what it
has made is removed after it. The API server keeps an audit log, so that the last test can compare the rules of RBAC
with the requests of the run.
"""

from collections.abc import AsyncIterator, Generator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from tests.kube.e2e.cells import Deployment
from tests.kube.e2e.cells import deployment as deployment_of
from tests.kube.e2e.standing import standing
from tests.kube.e2e.tidying import Furniture, furniture, tidy
from tests.kube.registrations import shared
from tests.support.brokers import Broker

from headgate.testing.control_plane import Options, control_plane, find_assets

LAST = "test_rbac.py"
FAILED: Final = pytest.StashKey[bool]()


class Shared(NamedTuple):
    """The control plane of this folder, and what was there before the first test."""

    deployment: Deployment
    furniture: Furniture


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember of each test whether it has failed."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What judges the whole run comes last."""
    items.sort(key=lambda item: item.path.name == LAST)


@pytest.fixture(scope="session")
async def shared_deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Shared]:
    """A control plane with CRDs, RBAC and a token for each process, and a broker."""
    folder: Path = tmp_path_factory.mktemp("kube-e2e")
    async with (
        control_plane(find_assets(), folder / "plane", options=Options(audit=True, nodes=2)) as plane,
        Broker(folder / "nats") as broker,
        deployment_of(plane, broker) as deployed,
        shared(plane),
    ):
        yield Shared(deployed, await furniture(deployed))


@pytest.fixture
async def deployment(shared_deployment: Shared, request: pytest.FixtureRequest) -> AsyncIterator[Deployment]:
    """The control plane as it was before the first test. Of a failed test is printed how things stand in the end."""
    deployed, before = shared_deployment
    yield deployed
    if request.node.stash.get(FAILED, False):
        print(await standing(deployed))
    await tidy(deployed, before)
