"""Create, read, replace: what the API server promises about every object."""

import os
import subprocess
import sys

import msgspec

from headgate.testing.cluster import BY_PLURAL, Cluster


def test_create_sets_identity_and_revision(client, config_map):
    """uid, creationTimestamp and resourceVersion are the server's; the rest is as given."""
    created = client.create(config_map)
    assert client.status == 201
    assert created["data"] == {"a": "1"}
    assert created["metadata"]["creationTimestamp"] == "2023-11-14T22:13:20Z"
    assert created["metadata"]["uid"]
    assert client.get(config_map) == created


def test_create_of_a_taken_name_is_refused(client, config_map):
    """409 AlreadyExists, and the first one stays."""
    first = client.create(config_map)
    refusal = client.create({**config_map, "data": {"a": "2"}})
    assert (client.status, refusal["reason"]) == (409, "AlreadyExists")
    assert refusal["message"] == 'configmaps "c" already exists'
    assert client.get(config_map) == first


def test_generated_names_are_distinct_and_keep_their_prefix(client, config_map):
    """GenerateName gives a fresh suffix of five characters each time."""
    config_map["metadata"] = {"generateName": "cm-", "namespace": "default"}
    names = {client.create(config_map)["metadata"]["name"] for _ in range(50)}
    assert len(names) == 50
    assert all(name.startswith("cm-") and len(name) == 8 for name in names)


def test_the_same_calls_give_the_same_bytes(clock, pod):
    """Two clusters of one seed agree byte for byte; another seed gives other uids."""
    pod["metadata"] = {"generateName": "p-", "namespace": "default"}

    def run(seed):
        cluster = Cluster(clock, seed=seed)
        for _ in range(5):
            cluster.request("POST", "/api/v1/namespaces/default/pods", {}, msgspec.json.encode(pod))
        return cluster.request("GET", "/api/v1/pods").body

    assert run("a") == run("a")
    assert run("a") != run("b")


RUN = """
import hashlib, sys
from headgate.testing.cluster import Cluster, ControllerOptions
now = [1_700_000_000_000]
cluster = Cluster(lambda: now[0], controllers=ControllerOptions(default_scheduler=True))
watch = cluster.watch("/api/v1/pods")
cluster.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}})
template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}}
for number in range(9):
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": f"j{number}"}}
    cluster.apply({**job, "spec": {"parallelism": 2, "completions": 3, "template": template}})
    labels = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"labels": {c: c for c in "abcdef"}}}
    path = f"/apis/batch/v1/namespaces/default/jobs/j{number}"
    cluster.request("PATCH", path, {"fieldManager": "m"}, labels, "application/apply-patch+yaml")
while (due := cluster.next_due_ms()) is not None:
    now[0] = max(now[0], due)
    cluster.step(now[0])
seen = b"".join(watch.poll()) + cluster.request("GET", "/apis/batch/v1/jobs").body
sys.stdout.write(hashlib.sha256(seen).hexdigest())
"""


def test_a_run_is_the_same_under_every_hash_seed():
    """Two processes with different string hashes see the same bytes, controllers and field ownership included."""
    runs = [
        subprocess.run(
            [sys.executable, "-c", RUN], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0]) == 64


def test_put_with_a_stale_revision_is_refused(client, config_map):
    """Optimistic concurrency: the second writer of one revision gets 409 and nothing is lost."""
    seen = client.create(config_map)
    client.put({**seen, "data": {"a": "2"}})
    refusal = client.put({**seen, "data": {"a": "3"}})
    assert (client.status, refusal["reason"]) == (409, "Conflict")
    assert refusal["message"].startswith(
        'Operation cannot be fulfilled on configmaps "c": the object has been modified'
    )
    assert client.get(config_map)["data"] == {"a": "2"}


def test_put_without_a_revision_replaces_core_kinds_and_is_refused_for_custom_ones(client, config_map, cluster_queue):
    """Unconditional update exists for Kubernetes' own kinds only."""
    client.create(config_map)
    assert client.put({**config_map, "data": {"b": "1"}})["data"] == {"b": "1"}
    client.create(cluster_queue)
    refusal = client.put(cluster_queue)
    assert client.status == 422
    assert "metadata.resourceVersion: Invalid value: 0: must be specified for an update" in refusal["message"]


def test_put_of_another_uid_is_refused(client, config_map):
    """The object was deleted and recreated: the writer meant another one."""
    seen = client.create(config_map)
    client.delete(config_map)
    client.create(config_map)
    stale = {**seen, "metadata": {"name": "c", "namespace": "default", "uid": seen["metadata"]["uid"]}}
    assert client.put(stale)["reason"] == "Conflict"


def test_a_write_that_changes_nothing_is_no_revision(client, config_map):
    """No new resourceVersion, no watch event."""
    seen = client.create(config_map)
    watch = client.cluster.watch("/api/v1/configmaps", {"resourceVersion": seen["metadata"]["resourceVersion"]})
    again = client.put(seen)
    assert again["metadata"]["resourceVersion"] == seen["metadata"]["resourceVersion"]
    assert watch.poll() == []


def test_generation_counts_changes_of_the_spec_only(client, cluster_queue):
    """Labels and status leave generation alone."""
    seen = client.create(cluster_queue)
    assert seen["metadata"]["generation"] == 1
    labelled = client.patch(cluster_queue, "merge", {"metadata": {"labels": {"a": "b"}}})
    assert labelled["metadata"]["generation"] == 1
    status = client.patch(cluster_queue, "merge", {"status": {"pendingWorkloads": 3}}, "status")
    assert status["metadata"]["generation"] == 1
    changed = client.patch(cluster_queue, "merge", {"spec": {"stopPolicy": "Hold"}})
    assert changed["metadata"]["generation"] == 2


def test_status_and_spec_are_written_through_their_own_doors(client, cluster_queue):
    """The main endpoint ignores status; /status ignores everything else."""
    created = client.create({**cluster_queue, "status": {"pendingWorkloads": 5}})
    assert "status" not in created
    both = {"spec": {"stopPolicy": "Hold"}, "status": {"pendingWorkloads": 7}}
    main = client.patch(cluster_queue, "merge", both)
    assert main["spec"]["stopPolicy"] == "Hold"
    assert "status" not in main
    other = {"spec": {"stopPolicy": "None"}, "status": {"pendingWorkloads": 7}, "metadata": {"labels": {"x": "y"}}}
    status = client.patch(cluster_queue, "merge", other, "status")
    assert status["spec"]["stopPolicy"] == "Hold"
    assert status["status"] == {"pendingWorkloads": 7}
    assert "labels" not in status["metadata"]


def test_dry_run_answers_and_stores_nothing(client, config_map):
    """dryRun=All on create, update and delete leaves the store as it was."""
    assert client.create(config_map, dryRun="All")["data"] == {"a": "1"}
    assert client.status == 201
    client.get(config_map)
    assert client.status == 404
    seen = client.create(config_map)
    client.patch(config_map, "merge", {"data": {"a": "2"}}, dryRun="All")
    client.delete(config_map, dryRun="All")
    assert client.get(config_map) == seen


def test_both_versions_of_a_kueue_kind_are_served(client, cluster_queue):
    """v1beta1 is the same object under another apiVersion, in gets, lists and watches."""
    client.create(cluster_queue)
    path = "/apis/kueue.x-k8s.io/v1beta1/clusterqueues"
    old = client.call("GET", path + "/cq")
    assert old["apiVersion"] == "kueue.x-k8s.io/v1beta1"
    assert client.call("GET", path)["items"] == [old]
    (event,) = client.cluster.watch(path).poll()
    assert msgspec.json.decode(event)["object"] == old
    assert client.get(cluster_queue)["spec"] == old["spec"]


def test_unknown_paths_and_kinds_are_404(client):
    """The message of a real API server, as a Status; a group that is not served is answered by the web server."""
    assert client.cluster.request("GET", "/apis/nope/v1/things").status == 404
    for path in ("/api/v1/unicorns", "/apis/batch/v1/namespaces/default/things", "/api/v1/namespaces/default/nodes"):
        answer = client.call("GET", path)
        assert (client.status, answer["kind"], answer["reason"]) == (404, "Status", "NotFound")


def test_create_in_an_absent_namespace_is_404(client, config_map):
    """The namespace is what is not found."""
    config_map["metadata"]["namespace"] = "nowhere"
    assert client.create(config_map)["message"] == 'namespaces "nowhere" not found'
    assert client.status == 404


def test_names_must_be_dns_names(client, config_map):
    """422 with the field path and Kubernetes' sentence."""
    config_map["metadata"]["name"] = "Not_A_Name"
    refusal = client.create(config_map)
    assert client.status == 422
    assert refusal["details"]["causes"][0]["field"] == "metadata.name"
    assert "a lowercase RFC 1123 subdomain must consist of" in refusal["message"]


def test_a_listing_is_in_key_order_and_says_its_revision(client, config_map):
    """Names sort within namespaces, whatever the order of creation."""
    for name in ("b", "c", "a"):
        client.create({**config_map, "metadata": {"name": name, "namespace": "default"}})
    listing = client.call("GET", "/api/v1/configmaps")
    assert [item["metadata"]["name"] for item in listing["items"]] == ["a", "b", "c"]
    assert listing["metadata"]["resourceVersion"] == str(client.cluster.store.rv)


def test_table_rows_have_the_printer_columns(client, cluster_queue, pod):
    """What kubectl prints: the columns of the CRD, and those of pods."""
    client.create(cluster_queue)
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
    table = client.cluster.request("GET", "/apis/kueue.x-k8s.io/v1beta2/clusterqueues", accept=accept).json()
    assert [c["name"] for c in table["columnDefinitions"]][:3] == ["Name", "Cohort", "Strategy"]
    assert table["rows"][0]["cells"] == ["cq", None, "BestEffortFIFO", None, None]
    client.create(pod)
    table = client.cluster.request("GET", "/api/v1/pods", accept=accept).json()
    assert table["rows"][0]["cells"][:4] == ["p", "0/1", "Pending", "0"]


def test_conveniences_agree_with_requests(client, config_map):
    """`apply` creates and then merges; `find` and `objects` see the same."""
    client.cluster.apply(config_map)
    client.cluster.apply({**config_map, "data": {"b": "2"}})
    kind = BY_PLURAL[("", "configmaps")]
    assert client.cluster.find(kind, "default", "c")["data"] == {"a": "1", "b": "2"}
    assert client.cluster.objects(kind) == [client.get(config_map)]
