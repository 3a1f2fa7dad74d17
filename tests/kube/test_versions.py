"""
Both versions of Kueue's API on a real API server: written in one, read in the other, and stored anew.

The webhook is the one of `headgate run webhook`: its handlers behind its HTTPS listener, with a certificate of its own.
"""

import base64
import datetime as dt
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import msgspec
import pytest
import yaml

from headgate.adapters.certificates import renewed
from headgate.adapters.kubernetes.client import KubeClient, PatchType
from headgate.adapters.kubernetes.crds.install import CrdError, install
from headgate.adapters.kubernetes.crds.kinds import KUEUE_GROUP, KUEUE_KINDS
from headgate.adapters.kubernetes.crds.migrate import migrate
from headgate.adapters.kubernetes.crds.render import Conversion
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.resources import RESOURCES
from headgate.adapters.kubernetes.server_resources import CUSTOM_RESOURCE_DEFINITIONS
from headgate.adapters.telemetry import Metrics
from headgate.core.api.conversion import V1BETA1, V1BETA2
from headgate.core.versions.converting import KEPT, convert
from headgate.processes.runtime.serving_certificates import listening, load_pair, new_context
from headgate.processes.runtime.settings import WebhookSettings
from headgate.processes.webhook.handlers import HANDLERS
from headgate.processes.webhook.server import Reviews
from headgate.testing.control_plane import Assets, ControlPlane, Options, control_plane

pytestmark = [pytest.mark.kube, pytest.mark.anyio]

Json = dict[str, Any]

BARE = Options(controllers=False, kwok=False, nodes=0)
PLURALS = {kind.kind: kind for kind in KUEUE_KINDS}
EXAMPLES = Path(__file__).parents[2] / "examples"
CASES = Path(__file__).parent / "crd_cases"


class Server(NamedTuple):
    """An API server whose definitions are converted by a webhook."""

    plane: ControlPlane
    client: KubeClient


@pytest.fixture(scope="module")
async def webhook(anyio_backend: str) -> AsyncIterator[Conversion]:
    """The webhook on this machine. The name in its certificate is that of its address."""
    stored = renewed(None, dt.datetime.now(dt.UTC), ("localhost",))
    context = new_context()
    load_pair(context, stored.certificate, stored.key)
    reviews = Reviews(HANDLERS, Metrics())
    async with listening(reviews.application(), context, WebhookSettings(host="localhost", port=0)) as port:
        bundle = base64.b64encode(stored.ca_bundle).decode()
        yield Conversion(url=f"https://localhost:{port}/convert", ca_bundle=bundle)


@pytest.fixture(scope="module")
async def server(
    webhook: Conversion, assets: Assets, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    """An API server with our definitions and the webhook."""
    folder = tmp_path_factory.mktemp("converted")
    async with control_plane(assets, folder, options=BARE) as plane, open_transport(plane.access()) as transport:
        client = KubeClient(transport)
        done = [each async for each in install(client, convert=True, webhook=webhook)]
        assert len(done) == len(KUEUE_KINDS)
        yield Server(plane, client)


def path(obj: Json, version: str, *, named: bool = True, subresource: str = "") -> str:
    kind = PLURALS[obj["kind"]]
    base = f"/apis/{version}" + ("/namespaces/default" if kind.namespaced else "") + f"/{kind.plural}"
    return base + (f"/{obj['metadata']['name']}{subresource}" if named else "")


async def read(server: Server, obj: Json, version: str) -> Json:
    found: Json = msgspec.json.decode(await server.client.request("GET", path(obj, version)))
    assert found["apiVersion"] == version
    return found


def content(obj: Json) -> Json:
    """What users write: without the metadata that the server fills in."""
    annotations = obj["metadata"].get("annotations", {})
    parts = {key: value for key, value in obj.items() if key not in {"apiVersion", "metadata"}}
    return parts | ({"annotations": annotations} if annotations else {})


FORMER = """
apiVersion: kueue.x-k8s.io/v1beta1
kind: ClusterQueue
metadata: {name: team}
spec:
  cohort: all
  namespaceSelector: {}
  admissionChecks: [prov, audit]
  flavorFungibility: {whenCanBorrow: Borrow, whenCanPreempt: TryNextFlavor}
  resourceGroups:
  - coveredResources: [cpu]
    flavors:
    - name: spot
      resources: [{name: cpu, nominalQuota: 9, borrowingLimit: 1}]
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: AdmissionCheck
metadata: {name: prov}
spec: {controllerName: example.com/prov, retryDelayMinutes: 20}
---
apiVersion: kueue.x-k8s.io/v1beta1
kind: Workload
metadata: {name: train, namespace: default}
spec:
  queueName: main
  priority: 7
  priorityClassName: high
  priorityClassSource: kueue.x-k8s.io/workloadpriorityclass
  podSets:
  - name: main
    count: 3
    template: {spec: {containers: [{name: main, image: train, resources: {requests: {cpu: 1}}}]}}
"""


async def test_manifests_of_v1beta1_apply_with_kubectl_and_read_in_both_versions(server: Server) -> None:
    """As written in v1beta1, as Kueue means it in v1beta2; applying them again changes nothing."""
    said = (await server.plane.kubectl("apply", "-f", "-", stdin=FORMER)).stdout
    assert said.count("created") == 3
    queue, check, workload = yaml.safe_load_all(FORMER)
    former, current = await read(server, queue, V1BETA1), await read(server, queue, V1BETA2)
    assert former["spec"]["cohort"] == current["spec"]["cohortName"] == "all"
    assert former["spec"]["admissionChecks"] == ["prov", "audit"]
    assert "admissionChecksStrategy" not in former["spec"]
    assert current["spec"]["admissionChecksStrategy"] == {"admissionChecks": [{"name": "prov"}, {"name": "audit"}]}
    assert former["spec"]["flavorFungibility"]["whenCanBorrow"] == "Borrow"
    assert current["spec"]["flavorFungibility"]["whenCanBorrow"] == "MayStopSearch"
    assert KEPT not in former["metadata"]["annotations"]
    assert (await read(server, check, V1BETA1))["spec"]["retryDelayMinutes"] == 20
    assert "retryDelayMinutes" not in (await read(server, check, V1BETA2))["spec"]
    assert (await read(server, workload, V1BETA2))["spec"]["priorityClassRef"] == {
        "group": KUEUE_GROUP,
        "kind": "WorkloadPriorityClass",
        "name": "high",
    }
    again = (await server.plane.kubectl("apply", "-f", "-", stdin=FORMER)).stdout
    assert again.count("unchanged") == 3
    for _ in range(2):
        applied = await server.plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=FORMER)
        assert applied.returncode == 0
    assert (await read(server, queue, V1BETA1))["metadata"]["generation"] == 1
    printed = (await server.plane.kubectl("get", "clusterqueues.v1beta1.kueue.x-k8s.io", "team")).stdout
    assert printed.splitlines()[1].split()[:2] == ["team", "all"]


async def test_a_client_of_v1beta1_changes_what_it_knows_and_keeps_the_rest(server: Server) -> None:
    """An update of a whole object that was read in v1beta1 loses nothing of v1beta2."""
    obj = {
        "apiVersion": V1BETA2,
        "kind": "Workload",
        "metadata": {"name": "gated"},
        "spec": {
            "queueName": "main",
            "preemptionGates": [{"name": "kueue.x-k8s.io/multikueue"}],
            "podSets": [
                {
                    "name": "main",
                    "count": 4,
                    "topologyRequest": {
                        "podsetSliceRequiredTopologyConstraints": [{"topology": "rack", "size": 2}],
                        "required": "block",
                    },
                    "template": {"spec": {"containers": [{"name": "main", "image": "train"}]}},
                }
            ],
        },
    }
    await server.client.request("POST", path(obj, V1BETA2, named=False), body=obj)
    slices = [
        {
            "domainCount": 2,
            "valuesPerLevel": [{"individual": {"prefix": "node-", "roots": ["1", "2"]}}],
            "podCounts": {"universal": 2},
        }
    ]
    topology = {"levels": ["kubernetes.io/hostname"], "slices": slices}
    stored = await read(server, obj, V1BETA2)
    stored["status"] = {
        "admission": {
            "clusterQueue": "team",
            "podSetAssignments": [{"name": "main", "count": 4, "topologyAssignment": topology}],
        },
        "preemptionGates": [
            {
                "name": "kueue.x-k8s.io/multikueue",
                "position": "Open",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
        "accumulatedPastExecutionTimeSeconds": 5,
    }
    await server.client.request("PUT", path(obj, V1BETA2, subresource="/status"), body=stored)
    before = await read(server, obj, V1BETA2)
    former = await read(server, obj, V1BETA1)
    assignment = former["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"]
    assert assignment["domains"] == [{"values": ["node-1"], "count": 2}, {"values": ["node-2"], "count": 2}]
    assert former["status"]["accumulatedPastExexcutionTimeSeconds"] == 5
    former["spec"]["maximumExecutionTimeSeconds"] = 60
    await server.client.request("PUT", path(obj, V1BETA1), body=former)
    former = await read(server, obj, V1BETA1)
    former["status"]["accumulatedPastExexcutionTimeSeconds"] = 6
    await server.client.request("PUT", path(obj, V1BETA1, subresource="/status"), body=former)
    after = await read(server, obj, V1BETA2)
    assert after["spec"].pop("maximumExecutionTimeSeconds") == 60
    assert after["status"].pop("accumulatedPastExecutionTimeSeconds") == 6
    before["status"].pop("accumulatedPastExecutionTimeSeconds")
    assert content(after) == content(before)


def manifests(assets: Assets) -> list[Json]:
    files = [*sorted(EXAMPLES.glob("*.yaml")), CASES / "objects.yaml", *sorted(assets.kueue_samples().glob("*.yaml"))]
    found: list[Json] = []
    for file in files:
        try:
            documents = list(yaml.safe_load_all(file.read_text()))
        except yaml.YAMLError:
            continue  # a template of Kueue's performance suite, which is filled in there
        for each in documents:
            if isinstance(each, dict) and each.get("kind") in PLURALS:
                version = each.get("apiVersion", V1BETA2)
                if version in {V1BETA1, V1BETA2}:
                    name = f"sample-{len(found)}"
                    found.append({**each, "apiVersion": version, "metadata": {"name": name}})
    return found


async def test_every_sample_is_the_same_in_both_versions(server: Server, assets: Assets) -> None:
    """Created in each of the versions, and read in each: four times the same."""
    samples = manifests(assets)
    assert len(samples) > 30
    for obj in samples:
        seen = []
        for version in (V1BETA2, V1BETA1):
            written = convert(obj, version)
            await server.client.request("POST", path(obj, version, named=False), body=written)
            found = [await read(server, obj, other) for other in (V1BETA2, V1BETA1)]
            seen += [content(convert(each, V1BETA2)) for each in found]
            await server.client.request("DELETE", path(obj, V1BETA2))
        assert seen[1:] == seen[:-1], obj


async def test_a_watch_of_v1beta2_sees_what_is_written_in_v1beta1(server: Server) -> None:
    """As the informer bridge watches: it needs to know one version only."""
    obj = {"apiVersion": V1BETA1, "kind": "ClusterQueue", "metadata": {"name": "seen"}, "spec": {"cohort": "all"}}
    seen: list[Json] = []
    listed = msgspec.json.decode(await server.client.request("GET", path(obj, V1BETA2, named=False)))
    query = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"], "timeoutSeconds": "20"}
    await server.client.request("POST", path(obj, V1BETA1, named=False), body=obj)
    with anyio.fail_after(60):
        async with server.client.stream(path(obj, V1BETA2, named=False), query=query, read_timeout_s=None) as lines:
            async for line in lines:
                seen.append(msgspec.json.decode(line)["object"])
                break
    assert (seen[0]["apiVersion"], seen[0]["spec"]["cohortName"]) == (V1BETA2, "all")
    await server.client.request("DELETE", path(obj, V1BETA2))


async def test_kubectl_explains_every_kind(server: Server) -> None:
    """Descriptions of a kind and of a field, in either version."""
    said = (await server.plane.kubectl("explain", "clusterqueue.spec.cohortName")).stdout
    assert "Cohort whose members share unused quota." in said
    said = (await server.plane.kubectl("explain", "clusterqueue.spec.cohort", f"--api-version={V1BETA1}")).stdout
    assert "Cohort whose members share unused quota." in said
    for kind in KUEUE_KINDS:
        said = (await server.plane.kubectl("explain", kind.plural, "--recursive")).stdout
        assert "<no description>" not in said.split("FIELDS:")[0], kind.kind


async def test_what_is_stored_in_v1beta1_is_migrated_and_needs_no_webhook_then(
    webhook: Conversion, assets: Assets, tmp_path: Path
) -> None:
    """As in a cluster of an old Kueue: v1beta1 was the storage version. An interrupted migration is run again."""
    async with control_plane(assets, tmp_path, options=BARE) as plane, open_transport(plane.access()) as transport:
        client = KubeClient(transport)
        assert [each async for each in install(client, convert=True, webhook=webhook)]
        name = f"clusterqueues.{KUEUE_GROUP}"
        await store_in(client, name, "v1beta1")
        server = Server(plane, client)
        objects = [
            {"apiVersion": V1BETA1, "kind": "ClusterQueue", "metadata": {"name": f"q-{n}"}, "spec": {"cohort": "all"}}
            for n in range(20)
        ]
        for obj in objects:
            await client.request("POST", path(obj, V1BETA1, named=False), body=obj)
        await store_in(client, name, "v1beta2")
        assert await stored_versions(client, name) == ["v1beta1", "v1beta2"]
        with pytest.raises(CrdError, match="run `headgate crds migrate` while its conversion works"):
            assert [each async for each in install(client, convert=False)]
        await client.patch(
            RESOURCES["clusterqueues"], "q-3", {}, patch_type=PatchType.MERGE
        )  # where an interrupted run ended
        command = (sys.executable, "-m", "headgate.cli.main", "crds", "migrate", "--kubeconfig", str(plane.kubeconfig))
        done = await anyio.run_process([*command, "--dry-run"], check=False)
        line = f"customresourcedefinition/{name} would be migrated: 20 objects (before: v1beta1, v1beta2)"
        assert line in done.stdout.decode().splitlines()
        assert await stored_versions(client, name) == ["v1beta1", "v1beta2"]
        done = await anyio.run_process(command, check=False)
        line = f"customresourcedefinition/{name} migrated: 20 objects stored as v1beta2 (before: v1beta1, v1beta2)"
        assert line in done.stdout.decode().splitlines(), done.stderr
        assert await stored_versions(client, name) == ["v1beta2"]
        assert not [each async for each in migrate(client) if each.is_needed]
        assert [each async for each in install(client, convert=False)]
        for obj in objects:
            assert (await read(server, obj, V1BETA2))["spec"]["cohortName"] == "all"
        refused = {**objects[0], "metadata": {"name": "late"}}
        with pytest.raises(ApiError, match="cohort is cohortName in v1beta2"):
            await client.request("POST", path(refused, V1BETA1, named=False), body=refused)


async def store_in(client: KubeClient, name: str, version: str) -> None:
    found = msgspec.json.decode(await client.get(CUSTOM_RESOURCE_DEFINITIONS, name))
    for each in found["spec"]["versions"]:
        each["storage"] = each["name"] == version
    await client.update(CUSTOM_RESOURCE_DEFINITIONS, name, found)
    await anyio.sleep(1)  # the API server goes on storing as before for a moment


async def stored_versions(client: KubeClient, name: str) -> list[str]:
    found = msgspec.json.decode(await client.get(CUSTOM_RESOURCE_DEFINITIONS, name))
    versions: list[str] = found["status"]["storedVersions"]
    return sorted(versions)
