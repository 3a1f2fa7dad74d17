"""
Kueue's documented samples, applied as they are, behave as its documentation says.

Those of Kueue v0.6.3 come with its Go module. Later ones are tried from the folder that `HEADGATE_SAMPLES` names, with
the layout of Kueue's `site/static/examples`.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.kube.e2e.cells import Deployment
from tests.kube.e2e.sample_checks import Try
from tests.kube.e2e.sample_checks_of_pods import TRIES
from tests.kube.e2e.samples import COMMON, Bench, add_nodes, samples_plane
from tests.kube.e2e.test_admission import configured

from headgate.core.config.frameworks import SUPPORTED
from headgate.testing.control_plane import NoAssetsError
from headgate.testing.control_plane.operators import operator
from headgate.testing.control_plane.samples import FOLDER, named_samples, released_samples

pytestmark = [pytest.mark.anyio, pytest.mark.kube]

RELEASED, NAMED = "v0.6.3", "named"


@pytest.fixture(scope="module")
async def samples_deployment(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Deployment]:
    """A control plane of its own: samples share names, and the namespace `default`."""
    async with samples_plane(tmp_path_factory.mktemp("samples")) as deployed:
        yield deployed


def folder_of(which: str) -> Path:
    """A set of samples. Raises NoAssetsError where it is not there."""
    if which == RELEASED:
        return released_samples()
    named = named_samples()
    if named is None:
        raise NoAssetsError(f"{FOLDER} names no folder of samples")
    return named


def there_are(which: str, tried: Try) -> bool:
    """Whether a set has all samples of a check; also where it cannot be told yet."""
    try:
        folder = folder_of(which)
    except NoAssetsError:
        return which == RELEASED and tried is TRIES[0]
    return all((folder / path).exists() for path in tried.paths)


CASES = [
    pytest.param(
        which,
        each,
        id=f"{which}-{each}",
        marks=[pytest.mark.operators] if which == NAMED or each.operator else [],
    )
    for which in (RELEASED, NAMED)
    for each in TRIES
    if there_are(which, each)
]


@pytest.mark.parametrize(("which", "tried"), CASES)
async def test_a_sample_behaves_as_documented(
    samples_deployment: Deployment, which: str, tried: Try, tmp_path: Path
) -> None:
    """What its page says of it: see its check."""
    bench = Bench(samples_deployment, folder_of(which))
    if tried.needs and tried.needs not in SUPPORTED:
        pytest.skip(f"{tried.needs} is not among the frameworks")
    async with AsyncExitStack() as stack:
        if tried.operator:
            await stack.enter_async_context(operator(samples_deployment.plane, tried.operator, tmp_path))
        bridge = stack.enter_context(configured(**COMMON, **tried.parts))
        name = samples_deployment.fresh("sample")
        await stack.enter_async_context(samples_deployment.cell(name, bridge=bridge))
        await add_nodes(samples_deployment, tried.nodes)
        try:
            await tried.check(bench, tried.paths[-1])
        finally:
            await bench.tidy()
            for node in tried.nodes:
                await samples_deployment.plane.kubectl("delete", "node", node["metadata"]["name"])
