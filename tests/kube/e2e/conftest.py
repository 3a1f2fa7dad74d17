"""
Headgate as it is deployed: on a real control plane with the RBAC of deploy, each process with its token and NATS user.

One control plane serves all tests of this folder; each test has a namespace and a cell (a log) of its own. The API
server keeps an audit log, so that the last test can compare the rules of RBAC with the requests of the run.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kube.e2e.cells import Deployment
from tests.kube.e2e.cells import deployment as deployment_of
from tests.support.brokers import Broker

from headgate.testing.control_plane import Options, control_plane, find_assets

LAST = "test_rbac.py"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What judges the whole run comes last."""
    items.sort(key=lambda item: item.path.name == LAST)


@pytest.fixture(scope="session")
async def deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    """A control plane with CRDs, RBAC and a token for each process, and a broker."""
    folder: Path = tmp_path_factory.mktemp("kube-e2e")
    async with (
        control_plane(find_assets(), folder / "plane", options=Options(audit=True, nodes=2)) as plane,
        Broker(folder / "nats") as broker,
        deployment_of(plane, broker) as deployed,
    ):
        yield deployed
