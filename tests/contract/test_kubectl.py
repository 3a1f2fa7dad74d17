"""The rounds with kubectl: what people do by hand works alike, and fails with the same words."""

import json
from typing import Any

import pytest
from tests.contract.cases import workload

pytestmark = pytest.mark.anyio

JOB = """
apiVersion: batch/v1
kind: Job
metadata:
  name: j
  labels: {app: x}
spec:
  suspend: true
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]
"""


@pytest.fixture
async def kubectl(server, namespace):
    """Run kubectl in the case's namespace; it must succeed unless `fails` is set."""

    async def run(*args, stdin=None, fails=False):
        ran = await server.kubectl("-n", namespace, *args, stdin=stdin)
        assert (ran.returncode != 0) is fails, ran.stderr
        return ran.stderr.strip() if fails else ran.stdout.strip()

    return run


async def test_create_get_change_and_delete(kubectl):
    """The life of a ConfigMap."""
    assert await kubectl("create", "configmap", "c", "--from-literal=k=1") == "configmap/c created"
    assert await kubectl("get", "configmap", "c", "-o", "jsonpath={.data.k}") == "1"
    assert await kubectl("label", "configmap", "c", "a=b") == "configmap/c labeled"
    assert await kubectl("annotate", "configmap", "c", "a=b") == "configmap/c annotated"
    patch = ["patch", "configmap", "c", "--type=merge", "-p", '{"data":{"k":"2"}}']
    assert await kubectl(*patch) == "configmap/c patched"
    assert await kubectl(*patch) == "configmap/c patched (no change)"
    assert await kubectl("get", "configmap", "-l", "a=b", "-o", "name") == "configmap/c"
    assert (await kubectl("delete", "configmap", "c")).startswith('configmap "c" deleted')
    said = await kubectl("get", "configmap", "c", fails=True)
    assert said == 'Error from server (NotFound): configmaps "c" not found'


async def test_apply_twice_and_change(kubectl):
    """Client-side apply keeps the last configuration and sends a strategic merge patch."""
    assert await kubectl("apply", "-f", "-", stdin=JOB) == "job.batch/j created"
    assert await kubectl("apply", "-f", "-", stdin=JOB) == "job.batch/j unchanged"
    changed = JOB.replace("app: x", "app: z")
    assert await kubectl("apply", "-f", "-", stdin=changed) == "job.batch/j configured"
    assert await kubectl("get", "job", "j", "-o", "jsonpath={.metadata.labels.app}") == "z"


async def test_apply_a_custom_resource(kubectl):
    """Client-side apply of a custom resource sends a merge patch."""
    manifest = json.dumps(workload("w"))
    assert await kubectl("apply", "-f", "-", stdin=manifest) == "workload.kueue.x-k8s.io/w created"
    assert await kubectl("apply", "-f", "-", stdin=manifest) == "workload.kueue.x-k8s.io/w unchanged"
    assert await kubectl("get", "kwl", "w", "-o", "jsonpath={.spec.queueName}") == "lq"


async def test_apply_on_the_server_and_conflict(kubectl):
    """Server-side apply by two managers; the conflict is reported in full."""
    manifest = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "1"}})
    other = manifest.replace('"1"', '"2"')
    apply = ["apply", "--server-side", "-f", "-"]
    assert await kubectl(*apply, "--field-manager=one", stdin=manifest) == "configmap/c serverside-applied"
    said = await kubectl(*apply, "--field-manager=two", stdin=other, fails=True)
    assert 'Apply failed with 1 conflict: conflict with "one": .data.k' in said
    assert (
        await kubectl(*apply, "--field-manager=two", "--force-conflicts", stdin=other)
        == "configmap/c serverside-applied"
    )


async def test_unknown_fields_are_refused(kubectl):
    """Kubectl requests strict field validation."""
    manifest = JOB.replace("suspend: true", "suspend: true\n  nope: 1")
    said = await kubectl("apply", "-f", "-", stdin=manifest, fails=True)
    assert 'unknown field "spec.nope"' in said


async def test_dry_run_and_diff(kubectl):
    """Both ask the server and change nothing."""
    assert await kubectl("apply", "--dry-run=server", "-f", "-", stdin=JOB) == "job.batch/j created (server dry run)"
    await kubectl("get", "job", "j", fails=True)
    await kubectl("apply", "-f", "-", stdin=JOB)
    assert await kubectl("diff", "-f", "-", stdin=JOB) == ""


async def test_replace_without_a_version(kubectl):
    """Replace sends an update without a version."""
    await kubectl("create", "configmap", "c", "--from-literal=k=1")
    manifest = json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"k": "2"}})
    assert await kubectl("replace", "-f", "-", stdin=manifest) == "configmap/c replaced"
    assert await kubectl("get", "configmap", "c", "-o", "jsonpath={.data.k}") == "2"


async def test_explain_knows_the_fields(kubectl):
    """The published schemas are those that objects are checked by."""
    said = await kubectl("explain", "workload.spec.queueName")
    assert "queueName <string>" in said


async def test_wait_for_a_condition(kubectl):
    """Kubectl lists and watches until it is so."""
    await kubectl("apply", "-f", "-", stdin=JOB)
    said = await kubectl("wait", "--for=jsonpath={.spec.suspend}=true", "job/j", "--timeout=20s")
    assert said == "job.batch/j condition met"


async def test_asking_what_one_may_do(kubectl):
    """`auth can-i` is answered for the user of the tests, who may do everything."""
    assert await kubectl("auth", "can-i", "create", "jobs.batch") == "yes"
    assert (await kubectl("auth", "whoami")).startswith("ATTRIBUTE")


async def test_events_of_one_group_are_shown_in_the_other(kubectl):
    """`get events` and `describe` read core/v1; an Event written to events.k8s.io is there, under other names."""
    await kubectl("apply", "-f", "-", stdin=JOB)
    event: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "j.1"},
        "eventTime": "2026-01-31T12:00:00.000000Z",
        "regarding": {"apiVersion": "batch/v1", "kind": "Job", "name": "j"},
        "reason": "Noticed",
        "action": "Notice",
        "type": "Normal",
        "note": "hello",
        "reportingController": "example.com/tests",
        "reportingInstance": "t-0",
    }
    for field in ("namespace", "uid"):
        event["regarding"][field] = await kubectl("get", "job", "j", "-o", f"jsonpath={{.metadata.{field}}}")
    await kubectl("create", "-f", "-", stdin=json.dumps(event))
    where = "{.message} {.involvedObject.name} {.reportingComponent} {.action}"
    assert await kubectl("get", "event", "j.1", "-o", f"jsonpath={where}") == "hello j example.com/tests Notice"
    assert "hello" in await kubectl("describe", "job", "j")
    await kubectl("delete", "event", "j.1")
    gone = await kubectl("get", "events.events.k8s.io", "j.1", fails=True)
    assert gone == 'Error from server (NotFound): events.events.k8s.io "j.1" not found'
