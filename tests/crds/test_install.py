"""Installing Kueue's definitions and comparing them, on the simulated cluster; on a real one see tests/kube."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from tests.support.doors import Door

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.crds.install import (
    CrdError,
    Installed,
    InstallOutcome,
    compare_installed,
    install,
    missing_crds,
)
from headgate.adapters.kubernetes.crds.kinds import KUEUE_KINDS
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.server_resources import CUSTOM_RESOURCE_DEFINITIONS
from headgate.adapters.kubernetes.transport import InProcessTransport, Request, Response
from headgate.testing.cluster import Cluster

pytestmark = pytest.mark.anyio

JsonObject = dict[str, Any]
COHORTS = "cohorts.kueue.x-k8s.io"


@pytest.fixture
def client() -> KubeClient:
    return KubeClient(InProcessTransport(Door(Cluster(lambda: 1_700_000_000_000))))


async def changed(client: KubeClient, change: Callable[[JsonObject], object], name: str = COHORTS) -> None:
    """Change a definition behind everybody's back."""
    found = msgspec.json.decode(await client.get(CUSTOM_RESOURCE_DEFINITIONS, name))
    change(found)
    await client.update(CUSTOM_RESOURCE_DEFINITIONS, name, found, field_manager="helm")


def foreign(found: JsonObject) -> None:
    found["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "Helm"}
    found["metadata"].pop("managedFields", None)


def version(found: JsonObject, name: str = "v1beta2") -> JsonObject:
    return next(each for each in found["spec"]["versions"] if each["name"] == name)


def status_of(found: JsonObject) -> JsonObject:
    properties = version(found)["schema"]["openAPIV3Schema"]["properties"]
    return properties["status"]["properties"]


async def installed(client: KubeClient, *, dry_run: bool = False, force: bool = False) -> dict[str, Installed]:
    return {each.name: each async for each in install(client, dry_run=dry_run, force=force)}


async def test_what_is_up_to_date_stays_as_it_is(client: KubeClient) -> None:
    """Run again, nothing is written."""
    before = await client.get(CUSTOM_RESOURCE_DEFINITIONS, COHORTS)
    done = await installed(client)
    assert list(done) == [kind.resource for kind in KUEUE_KINDS]
    assert {each.state for each in done.values()} == {InstallOutcome.UNCHANGED}
    assert await client.get(CUSTOM_RESOURCE_DEFINITIONS, COHORTS) == before


async def test_an_older_one_of_ours_is_brought_up_to_date(client: KubeClient) -> None:
    """The first difference is named; a dry run finds it too and changes nothing."""
    await changed(client, lambda found: status_of(found).pop("fairSharing"))
    for dry_run in (True, False):
        done = await installed(client, dry_run=dry_run)
        assert {each.state for each in done.values()} == {InstallOutcome.UNCHANGED, InstallOutcome.UPDATED}
        assert done[COHORTS] == Installed(
            name=COHORTS, state=InstallOutcome.UPDATED, detail="v1beta2 status.fairSharing"
        )
    assert all(not each.differences for each in await compare_installed(client))


async def test_what_others_installed_is_checked_and_left_alone(client: KubeClient) -> None:
    """It serves what we use, so Headgate runs on it; a missing spec field is only reported."""
    await changed(client, foreign)
    done = (await installed(client))[COHORTS]
    assert done == Installed(
        name=COHORTS, state=InstallOutcome.LEFT, detail="installed by Helm, serves v1beta2 with every field we use"
    )
    await changed(
        client,
        lambda found: version(found)["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"].pop("parentName"),
    )
    done = (await installed(client))[COHORTS]
    assert done.usable
    assert done.detail == "installed by Helm, serves v1beta2 without spec.parentName: objects cannot use them"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda found: status_of(found).pop("fairSharing"), "serves v1beta2 without status.fairSharing: upgrade it"),
        (lambda found: version(found).update(served=False), "does not serve v1beta2: upgrade it"),
    ],
)
async def test_what_others_installed_and_headgate_cannot_use_is_told(
    client: KubeClient, change: Callable[[JsonObject], object], said: str
) -> None:
    """A status field that the server drops, a version that it does not serve; `force` puts ours in its place."""

    def both(found: JsonObject) -> None:
        foreign(found)
        change(found)

    await changed(client, both)
    done = (await installed(client))[COHORTS]
    assert (done.state, done.usable) == (InstallOutcome.LEFT, False)
    assert said in done.detail
    done = (await installed(client, force=True))[COHORTS]
    assert (done.state, done.usable, done.detail) == (InstallOutcome.REPLACED, True, "was installed by Helm")
    assert (await installed(client))[COHORTS].state is InstallOutcome.UNCHANGED


async def test_a_definition_whose_objects_only_its_own_conversion_can_read_is_not_replaced(client: KubeClient) -> None:
    """Ours has no conversion: objects that are stored as v1beta1 would lose fields."""
    await changed(client, foreign)
    found = msgspec.json.decode(await client.get(CUSTOM_RESOURCE_DEFINITIONS, COHORTS))
    found["status"]["storedVersions"] = ["v1beta1", "v1beta2"]
    await client.update(CUSTOM_RESOURCE_DEFINITIONS, COHORTS, found, subresource="status")
    with pytest.raises(CrdError, match="may have objects that are stored as v1beta1"):
        await installed(client, force=True)


async def test_a_definition_that_is_being_deleted_is_waited_for_by_its_user(client: KubeClient) -> None:
    """What was done before it has been reported."""
    await changed(client, lambda found: found["metadata"].update(finalizers=["example.com/held"]))
    await client.delete(CUSTOM_RESOURCE_DEFINITIONS, COHORTS)
    running = install(client)
    before = [kind.resource for kind in KUEUE_KINDS][: [kind.plural for kind in KUEUE_KINDS].index("cohorts")]
    assert [(await anext(running)).name for _ in before] == before
    with pytest.raises(CrdError, match=f"{COHORTS} is being deleted, with all its objects: run this again"):
        await anext(running)


async def test_names_that_another_definition_has_are_told(client: KubeClient) -> None:
    """The API server stores such a definition and never serves it."""
    await changed(client, lambda found: status_of(found).pop("fairSharing"))
    found = msgspec.json.decode(await client.get(CUSTOM_RESOURCE_DEFINITIONS, COHORTS))
    found["status"]["conditions"][0].update(status="False", message='"cohorts" is already in use')
    await client.update(CUSTOM_RESOURCE_DEFINITIONS, COHORTS, found, subresource="status")
    with pytest.raises(CrdError, match='is stored and not served: "cohorts" is already in use'):
        await installed(client)


async def test_a_comparison_names_each_difference_and_both_sides(client: KubeClient) -> None:
    """In meaning: order and descriptions are not looked at."""

    def change(found: JsonObject) -> None:
        spec = version(found)["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec["properties"]["parentName"]["maxLength"] = 10
        spec["properties"]["parentName"]["description"] = "whose quota it shares"
        found["spec"]["names"]["shortNames"] = ["c"]
        found["spec"]["versions"].reverse()

    await changed(client, change)
    found = {each.name: each for each in await compare_installed(client)}
    assert [f"{each.path}: {each.ours} / {each.theirs}" for each in found[COHORTS].differences] == [
        'names.shortNames: ["co"] / ["c"]',
        "v1beta2 spec.parentName maxLength: 253 / 10",
    ]
    await client.delete(CUSTOM_RESOURCE_DEFINITIONS, COHORTS)
    assert not {each.name: each for each in await compare_installed(client)}[COHORTS].there


async def test_what_the_server_refuses_is_an_error_that_says_what_is_missing() -> None:
    """A user without the right to look at definitions."""
    message = (
        'customresourcedefinitions.apiextensions.k8s.io "workloads.kueue.x-k8s.io" is forbidden: User "eve" cannot get '
        'resource "customresourcedefinitions" in API group "apiextensions.k8s.io" at the cluster scope'
    )

    class Guarded(Door):
        async def handle(self, request: Request) -> Response:
            status = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "message": message, "code": 403}
            return Response(status=403, headers={}, body=msgspec.json.encode(status))

    client = KubeClient(InProcessTransport(Guarded(Cluster(lambda: 0))))
    with pytest.raises(ApiError, match='User "eve" cannot get resource "customresourcedefinitions"'):
        await installed(client)


async def test_what_an_api_server_does_not_serve_is_missing(client: KubeClient) -> None:
    """By discovery; a group that does not exist is no error."""
    assert await missing_crds(client) == ()

    class Empty(Door):
        async def handle(self, request: Request) -> Response:
            if request.path.startswith("/apis/kueue.x-k8s.io"):
                request = msgspec.structs.replace(request, path="/apis/nothing.example/v1")
            return await super().handle(request)

    bare = KubeClient(InProcessTransport(Empty(Cluster(lambda: 0))))
    missing = await missing_crds(bare)
    assert "workloads.kueue.x-k8s.io" in missing
    assert "multikueueconfigs.kueue.x-k8s.io" not in missing  # nothing of Headgate reads it
