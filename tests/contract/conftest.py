"""The fixtures of the contract suite: `server`, once as the simulated cluster and once as a real one; `namespace`."""

import pytest
from tests.contract.servers import real_server, simulated_server


@pytest.fixture(scope="session", params=["simulated", pytest.param("real", marks=pytest.mark.kube)])
async def server(anyio_backend, request, tmp_path_factory):
    """The API server under test; one of each kind for the whole session."""
    folder = tmp_path_factory.mktemp(request.param)
    opened = real_server(folder) if request.param == "real" else simulated_server(folder)
    async with opened as found:
        yield found


@pytest.fixture
async def namespace(server):
    """A namespace that only this case uses."""
    return await server.fresh_namespace()
