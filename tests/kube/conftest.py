"""
The real control plane of the tests that are marked `kube`.

`make kube` builds it; where there is none, these tests are skipped, and the reason names what is missing.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.kube.registrations import left_behind, shared

from headgate.testing.control_plane import Assets, ControlPlane, Options, control_plane, find_assets
from headgate.testing.control_plane.assets import BINARIES


@pytest.fixture(scope="session")
def assets() -> Assets:
    """The binaries."""
    return find_assets()


@pytest.fixture(scope="session")
def all_assets(assets: Assets) -> Assets:
    """The binaries, none of them missing: a folder of envtest's has neither controllers nor kubelets."""
    for each in BINARIES:
        assets.binary(each.name)
    return assets


@pytest.fixture(scope="session")
async def plane(
    anyio_backend: str, assets: Assets, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    """One control plane for all tests that leave it as they found it: with an audit log, controllers, and a node."""
    folder: Path = tmp_path_factory.mktemp("control-plane")
    async with control_plane(assets, folder, options=Options(audit=True)) as running, shared(running):
        yield running


@pytest.fixture(autouse=True)
async def nothing_is_left_registered(anyio_backend: str) -> AsyncIterator[None]:
    """A test that shares a control plane leaves no server for it to call, and no policy."""
    yield
    assert await left_behind() == []
