"""
Our CustomResourceDefinitions on a real API server, beside another that has Kueue's own, and the simulated one.

What an object gets from the one it gets from the others, word for word; `headgate crds` distinguishes them.
"""

import copy
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import msgspec
import pytest
import yaml

from headgate.adapters.kubernetes.client import KubeClient, PatchType
from headgate.adapters.kubernetes.crds.install import InstallOutcome, install, missing_crds
from headgate.adapters.kubernetes.crds.kinds import KUEUE_GROUP, KUEUE_KINDS
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.kubeconfig import resolve
from headgate.adapters.kubernetes.server_resources import CUSTOM_RESOURCE_DEFINITIONS
from headgate.testing.cluster import Cluster
from headgate.testing.cluster.api.server import kubeconfig, serve, wall_clock_ms
from headgate.testing.control_plane import Assets, ControlPlane, Options, control_plane

pytestmark = [pytest.mark.kube, pytest.mark.anyio]

JsonObject = dict[str, Any]
BARE = Options(controllers=False, kwok=False, nodes=0)
WORKLOADS = f"workloads.{KUEUE_GROUP}"
CASES = Path(__file__).parent / "crd_cases"
PLURALS = {kind.kind: kind for kind in KUEUE_KINDS}


class Server(NamedTuple):
    """An API server with one of the two sets of definitions; the simulated one has no plane."""

    plane: ControlPlane | None
    client: KubeClient


@pytest.fixture(scope="module")
async def ours(anyio_backend: str, assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """An API server with our definitions, installed by us."""
    folder = tmp_path_factory.mktemp("ours")
    async with control_plane(assets, folder, options=BARE) as plane, open_transport(plane.access()) as transport:
        client = KubeClient(transport)
        assert [each.state async for each in install(client)] == [InstallOutcome.CREATED] * len(KUEUE_KINDS)
        yield Server(plane, client)


@pytest.fixture(scope="module")
async def kueues(anyio_backend: str, assets: Assets, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """An API server with Kueue's definitions, installed by kubectl."""
    folder = tmp_path_factory.mktemp("kueues")
    async with control_plane(assets, folder, options=BARE) as plane, open_transport(plane.access()) as transport:
        client = KubeClient(transport)
        await install_kueues(plane, client, assets)
        yield Server(plane, client)


@pytest.fixture(scope="module")
async def simulated(anyio_backend: str, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Server]:
    """The simulated API server."""
    async with serve(Cluster(wall_clock_ms)) as url:
        file = tmp_path_factory.mktemp("simulated") / "kubeconfig"
        file.write_text(kubeconfig(url))
        async with open_transport(resolve(kubeconfig=str(file), environ={})) as transport:
            yield Server(None, KubeClient(transport))


Servers = tuple[Server, Server, Server]


@pytest.fixture
def servers(ours: Server, kueues: Server, simulated: Server) -> Servers:
    return ours, kueues, simulated


def plane_of(server: Server) -> ControlPlane:
    """The control plane of a server that is no simulation."""
    assert server.plane is not None
    return server.plane


async def install_kueues(plane: ControlPlane, client: KubeClient, assets: Assets) -> None:
    await plane.kubectl("create", "-f", str(assets.kueue_crds()))
    with anyio.fail_after(60):
        for kind in KUEUE_KINDS:
            await served(client, f"/apis/{KUEUE_GROUP}/{kind.version}/{kind.plural}")
        while True:
            if not await missing_crds(client):
                return
            await anyio.sleep(0.1)


async def served(client: KubeClient, collection: str) -> None:
    """Wait until a collection answers: the server that has just taken its definition begins with 404 and 429."""
    while True:
        try:
            await client.request("GET", collection)
        except ApiError:
            await anyio.sleep(0.1)
        else:
            return


async def headgate(*args: str) -> tuple[int, list[str], list[str]]:
    done = await anyio.run_process([sys.executable, "-m", "headgate.cli.main", *args], check=False)
    return done.returncode, done.stdout.decode().splitlines(), done.stderr.decode().splitlines()


# --- objects ---------------------------------------------------------------------------------------------------------

OBJECTS = {
    obj["kind"]: {"apiVersion": f"{KUEUE_GROUP}/v1beta2", **obj}
    for obj in yaml.safe_load_all((CASES / "objects.yaml").read_text())
}


def condition(kind: str) -> JsonObject:
    return {"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}


ADMISSION = {"clusterQueue": "good", "podSetAssignments": [{"name": "leader"}, {"name": "workers"}]}
NAMED = {
    "RESERVED": {"conditions": [condition("QuotaReserved")], "admission": ADMISSION},
    "ADMITTED": {"conditions": [condition("QuotaReserved"), condition("Admitted")], "admission": ADMISSION},
}


def rows(table: str, columns: int) -> list[list[str]]:
    """The rows of a table of cases; its first line names its columns."""
    lines = [line for line in (CASES / table).read_text().splitlines() if line and not line.startswith("#")]
    return [line.split(maxsplit=columns - 1) for line in lines]


def put(obj: JsonObject, where: str, what: str) -> JsonObject:
    """A copy of an object with one thing changed."""
    changed = copy.deepcopy(obj)
    *steps, last = (int(step) if step.isdecimal() else step for step in where.split("."))
    holder: Any = changed
    for step in steps:
        holder = holder[step] if isinstance(step, int) else holder.setdefault(step, {})
    if what == "-":
        del holder[last]
    else:
        holder[last] = msgspec.json.decode(what)
    return changed


def path(obj: JsonObject, subresource: str = "", *, named: bool = True) -> str:
    kind = PLURALS[obj["kind"]]
    base = f"/apis/{obj['apiVersion']}" + ("/namespaces/default" if kind.namespaced else "") + f"/{kind.plural}"
    return base + (f"/{obj['metadata']['name']}" if named else "") + subresource


async def answered(
    server: Server, method: str, where: str, obj: JsonObject, **query: str
) -> tuple[int, str, JsonObject]:
    """The code, the words if it was refused (their order is any: the server goes through maps), the object if not."""
    try:
        body = await server.client.request(method, where, query=query, body=obj)
    except ApiError as error:
        words = sorted(f"{cause.field}: {cause.message}" for cause in error.causes)
        return error.status, "\n".join(words or [error.message]), {}
    return 200, "", msgspec.json.decode(body)


def content(obj: JsonObject) -> JsonObject:
    return {key: value for key, value in obj.items() if key != "metadata"}


# --- the same answers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", OBJECTS)
async def test_a_good_object_is_stored_as_with_kueue(kind: str, servers: Servers) -> None:
    """With the same defaults; in a pod template only undefined fields can differ."""
    obj = OBJECTS[kind]
    found = [
        await answered(server, "POST", path(obj, named=False), obj, dryRun="All", fieldValidation="Strict")
        for server in servers
    ]
    assert found[0][:2] == (200, "")
    assert content(found[0][2]) == content(found[1][2])
    assert content(found[2][2]) == content(found[0][2]), "the simulated server"


@pytest.mark.parametrize(("kind", "where", "what"), rows("faults.txt", 3))
async def test_a_bad_object_is_refused_as_with_kueue(kind: str, where: str, what: str, servers: Servers) -> None:
    """The same code, the same words, the same fields."""
    obj = put(OBJECTS[kind], where, what)
    found = [await answered(server, "POST", path(obj, named=False), obj, dryRun="All") for server in servers]
    assert found[0][:2] == found[1][:2]
    assert found[2][:2] == found[0][:2], "the simulated server"
    assert found[0][0] in ((200,) if what == "null" or (kind, where, what) in TAKEN else (422,))


TAKEN = {("Topology", "spec", "-"), ("AdmissionCheck", "spec", "-")}
"""Faults that Kueue's definitions take as well."""


@pytest.mark.parametrize(("kind", "before", "where", "what"), rows("updates.txt", 4))
async def test_an_update_is_judged_as_with_kueue(
    kind: str, before: str, where: str, what: str, servers: Servers
) -> None:
    """What must not change does not, from the moment from which it must not."""
    obj = OBJECTS[kind]
    found = []
    for server in servers:
        code, words, stored = await answered(server, "POST", path(obj, named=False), obj)
        assert code == 200, words
        if before in NAMED:
            code, words, stored = await answered(
                server, "PUT", path(obj, "/status"), {**stored, "status": NAMED[before]}
            )
            assert code == 200, words
        found.append((await answered(server, "PUT", path(obj), put(stored, where, what)))[:2])
        await server.client.request("DELETE", path(obj))
    assert found[0] == found[1]
    assert found[2] == found[0], "the simulated server"


@pytest.mark.parametrize("status", rows("statuses.txt", 1))
async def test_a_workloads_status_is_judged_as_with_kueue(status: list[str], servers: Servers) -> None:
    """Bad and good ones."""
    obj = OBJECTS["Workload"]
    found = []
    for server in servers:
        await answered(server, "POST", path(obj, named=False), obj)
        patch = {**obj, "spec": {}, "status": msgspec.json.decode(status[0])}
        stored = msgspec.json.decode(await server.client.request("GET", path(obj)))
        found.append((await answered(server, "PUT", path(obj, "/status"), {**stored, "status": patch["status"]}))[:2])
        await server.client.request("DELETE", path(obj))
    assert found[0] == found[1]
    assert found[2] == found[0], "the simulated server"


async def test_manifests_that_were_written_for_kueue_apply_unchanged(
    assets: Assets, ours: Server, kueues: Server
) -> None:
    """Those of Kueue's repository, through kubectl, as they are."""
    files = sorted(assets.kueue_samples().glob("*.yaml"))
    applied = 0
    for file in files:
        objects = [each for each in objects_of(file) if each["apiVersion"].startswith(KUEUE_GROUP)]
        for obj in objects:
            text = yaml.safe_dump(
                put(obj, "metadata.namespace", '"default"') if PLURALS[obj["kind"]].namespaced else obj
            )
            for server in (kueues, ours):
                done = await plane_of(server).kubectl("apply", "--dry-run=server", "-f", "-", stdin=text, check=False)
                assert done.returncode == 0, f"{file.name}: {done.stderr}"
            applied += 1
    assert applied > 5


def objects_of(file: Path) -> list[JsonObject]:
    try:
        documents = list(yaml.safe_load_all(file.read_text()))
    except yaml.YAMLError:
        return []  # a template of Kueue's performance suite, which is filled in there
    return [each for each in documents if isinstance(each, dict) and each.get("kind") in PLURALS]


async def test_kubectl_prints_them_as_with_kueue(ours: Server, kueues: Server) -> None:
    """The same columns and cells for the same objects, wide or not."""
    for server in (ours, kueues):
        for obj in OBJECTS.values():
            assert (await answered(server, "POST", path(obj, named=False), obj))[0] == 200
        stored = msgspec.json.decode(await server.client.request("GET", path(OBJECTS["Workload"])))
        status = {**stored, "status": NAMED["ADMITTED"]}
        assert (await answered(server, "PUT", path(status, "/status"), status))[0] == 200
    for plural in [kind.plural for kind in KUEUE_KINDS]:
        for wide in ((), ("-o", "wide")):
            printed = [(await plane_of(server).kubectl("get", plural, *wide)).stdout for server in (ours, kueues)]
            tables = [[line.split() for line in text.splitlines()] for text in printed]
            for table in tables:
                if table[0][-1] == "AGE":
                    table[1].pop()
            assert tables[0] == tables[1], plural
    for server in (ours, kueues):
        for obj in OBJECTS.values():
            await server.client.request("DELETE", path(obj))


# --- v1beta1 ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "where", "what", "said"), rows("former.txt", 4))
async def test_what_v1beta1_spells_otherwise_is_refused_with_what_to_write(
    kind: str, where: str, what: str, said: str, ours: Server, simulated: Server
) -> None:
    """Nothing of a manifest is dropped in silence."""
    obj = {**put(OBJECTS[kind], where, what), "apiVersion": f"{KUEUE_GROUP}/v1beta1"}
    for server in (ours, simulated):
        code, words, _ = await answered(server, "POST", path(obj, named=False), obj, dryRun="All")
        assert (code, words) == (422, said)


@pytest.mark.parametrize("kind", OBJECTS)
@pytest.mark.parametrize("on", [0, 2], ids=["real", "simulated"])
async def test_what_v1beta1_spells_alike_is_stored_as_v1beta2(kind: str, on: int, servers: Servers) -> None:
    """Written through the one version and read through the other; an empty former field is no hindrance."""
    server = servers[on]
    former = {**OBJECTS[kind], "apiVersion": f"{KUEUE_GROUP}/v1beta1"}
    if kind == "Workload":
        former = put(former, "spec.priorityClassSource", '""')
    code, words, stored = await answered(server, "POST", path(former, named=False), former)
    assert code == 200, words
    assert stored["apiVersion"] == f"{KUEUE_GROUP}/v1beta1"
    read = msgspec.json.decode(await server.client.request("GET", path(OBJECTS[kind])))
    code, _, expected = await answered(
        server, "POST", path(OBJECTS[kind], named=False), put(OBJECTS[kind], "metadata.name", '"other"'), dryRun="All"
    )
    assert code == 200
    assert content(read) == content(expected)
    await server.client.request("DELETE", path(OBJECTS[kind]))


# --- headgate crds ---------------------------------------------------------------------------------------------------


async def test_installing_again_changes_nothing_and_an_older_one_is_upgraded(ours: Server) -> None:
    """`headgate crds install` is safe to run at any time, and `diff` agrees with it."""
    cluster = ("--kubeconfig", str(plane_of(ours).kubeconfig))
    code, out, err = await headgate("crds", "install", *cluster)
    assert (code, err) == (0, [])
    assert out == [f"customresourcedefinition/{kind.resource} unchanged" for kind in KUEUE_KINDS]
    assert await headgate("crds", "diff", *cluster) == (0, [], [])
    found = msgspec.json.decode(await ours.client.get(CUSTOM_RESOURCE_DEFINITIONS, WORKLOADS))
    for version in found["spec"]["versions"]:
        del version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["schedulingStats"]
    await ours.client.update(CUSTOM_RESOURCE_DEFINITIONS, WORKLOADS, found, field_manager="somebody")
    code, out, _ = await headgate("crds", "diff", *cluster)
    assert code == 1
    assert out == [f"{WORKLOADS}: {version} status.schedulingStats: object / -" for version in ("v1beta2", "v1beta1")]
    code, out, _ = await headgate("crds", "install", *cluster)
    assert out[0] == f"customresourcedefinition/{WORKLOADS} updated: v1beta2 status.schedulingStats and 1 more"
    assert await headgate("crds", "diff", *cluster) == (0, [], [])


async def test_kueues_own_are_left_alone_until_they_are_replaced_by_force(assets: Assets, tmp_path: Path) -> None:
    """Headgate runs on them; objects that they hold are there afterwards."""
    async with control_plane(assets, tmp_path, options=BARE) as plane, open_transport(plane.access()) as transport:
        client = KubeClient(transport)
        assert len(await missing_crds(client)) == 9
        await install_kueues(plane, client, assets)
        assert await missing_crds(client) == ()
        cluster = ("--kubeconfig", str(plane.kubeconfig))
        code, out, _ = await headgate("crds", "install", *cluster)
        assert code == 0
        assert set(out) == {
            f"customresourcedefinition/{kind.resource} left alone: installed by kubectl-create, "
            "serves v1beta2 with every field we use"
            for kind in KUEUE_KINDS
        }
        assert (await headgate("crds", "diff", *cluster))[0] == 1
        server, cohort = Server(plane, client), OBJECTS["Cohort"]
        await answered(server, "POST", path(cohort, named=False), cohort)
        code, out, err = await headgate("crds", "install", "--force", *cluster)
        assert (code, err) == (0, [])
        assert all(line.endswith("replaced: was installed by kubectl-create") for line in out)
        assert await headgate("crds", "diff", *cluster) == (0, [], [])
        assert (await headgate("crds", "install", *cluster))[1][0].endswith("unchanged")
        assert msgspec.json.decode(await client.request("GET", path(cohort)))["spec"]["parentName"] == "root"


async def test_without_definitions_up_ends_with_what_to_do_and_a_dry_run_installs_nothing(
    assets: Assets, tmp_path: Path
) -> None:
    """One line that names the command; then a definition in deletion, which has to be waited for."""
    async with control_plane(assets, tmp_path, options=BARE) as plane, open_transport(plane.access()) as transport:
        cluster = ("--kubeconfig", str(plane.kubeconfig))
        code, _, err = await headgate("up", "--data", str(tmp_path / "cell"), *cluster)
        assert code == 1
        assert len(err) == 1
        assert err[0].endswith(f"install them with `headgate crds install --kubeconfig {plane.kubeconfig}`")
        code, out, _ = await headgate("crds", "install", "--dry-run", *cluster)
        assert (code, out[0]) == (0, f"customresourcedefinition/{WORKLOADS} would be created")
        client = KubeClient(transport)
        assert not (await client.list(CUSTOM_RESOURCE_DEFINITIONS)).items
        assert (await headgate("crds", "diff", *cluster))[:2] == (
            1,
            [f"{kind.resource}: not installed" for kind in KUEUE_KINDS],
        )
        done = [each async for each in install(client)]
        assert {each.state for each in done} == {InstallOutcome.CREATED}
        held = {"metadata": {"finalizers": ["example.com/held"]}}
        await client.patch(CUSTOM_RESOURCE_DEFINITIONS, done[1].name, held, patch_type=PatchType.MERGE)
        await client.delete(CUSTOM_RESOURCE_DEFINITIONS, done[1].name)
        code, out, err = await headgate("crds", "install", *cluster)
        assert (code, out) == (1, [f"customresourcedefinition/{WORKLOADS} unchanged"])
        assert "is being deleted, with all its objects: run this again when it is gone" in err[0]
        assert "(done: workloads; not done: clusterqueues, localqueues, " in err[0]
