"""Jobs as documents: what is filled in, what is refused, and what may be changed when."""

from typing import Any

import pytest
from tests.contract.cases import MERGE_PATCH, STRATEGIC_PATCH, batch, core
from tests.contract.running import NODE, causes, conditions, create_job, job, patch, until

pytestmark = pytest.mark.anyio

UID, NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"


async def test_a_job_is_filled_in(server, namespace):
    """Counts, back-off, modes; a selector for its pods only, and the labels that match it, for itself too."""
    made = await create_job(server, namespace, suspend=True)
    uid = made["metadata"]["uid"]
    labels = {UID: uid, NAME: "j", "controller-uid": uid, "job-name": "j"}
    spec = dict(made["spec"])
    template = spec.pop("template")
    assert spec == {
        "parallelism": 1,
        "completions": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "manualSelector": False,
        "podReplacementPolicy": "TerminatingOrFailed",
        "selector": {"matchLabels": {UID: uid}},
        "suspend": True,
    }
    assert template == {
        "metadata": {"labels": labels},
        "spec": {
            "containers": [
                {
                    "name": "c",
                    "image": "i",
                    "imagePullPolicy": "Always",
                    "resources": {},
                    "terminationMessagePath": "/dev/termination-log",
                    "terminationMessagePolicy": "File",
                }
            ],
            "dnsPolicy": "ClusterFirst",
            "restartPolicy": "Never",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
        },
    }
    assert (made["metadata"]["labels"], made["metadata"]["generation"], made["status"]) == (labels, 1, {})


@pytest.mark.parametrize(
    ("given", "filled"),
    [
        ({"parallelism": 3}, {"parallelism": 3, "completions": None, "backoffLimit": 6}),
        ({"completions": 3}, {"parallelism": 1, "completions": 3, "backoffLimit": 6}),
        (
            {"completionMode": "Indexed", "completions": 3, "backoffLimitPerIndex": 2},
            {"parallelism": 1, "backoffLimit": 2**31 - 1},
        ),
        (
            {"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}},
            {"podReplacementPolicy": "Failed"},
        ),
    ],
)
async def test_defaults_depend_on_what_is_given(server, namespace, given, filled):
    """Completions only without parallelism, no total limit where each index has its own, replacement by policy."""
    answer = await server.call("POST", batch(namespace), job(**given), dryRun="All")
    assert {name: answer.json["spec"].get(name) for name in filled} == filled


NOT_NEGATIVE = "must be greater than or equal to 0"
REFUSED = [
    ({"parallelism": -1}, [f"spec.parallelism: {NOT_NEGATIVE}"]),
    ({"completions": -1}, [f"spec.completions: {NOT_NEGATIVE}"]),
    ({"backoffLimit": -1}, [f"spec.backoffLimit: {NOT_NEGATIVE}"]),
    ({"activeDeadlineSeconds": -5}, [f"spec.activeDeadlineSeconds: {NOT_NEGATIVE}"]),
    ({"ttlSecondsAfterFinished": -1}, [f"spec.ttlSecondsAfterFinished: {NOT_NEGATIVE}"]),
    ({"completionMode": "Indexed"}, []),
    (
        {"completionMode": "Indexed", "parallelism": 1},
        ["spec.completions: Required value: when completion mode is Indexed"],
    ),
    (
        {"completionMode": "Odd"},
        ['spec.completionMode: Unsupported value: "Odd": supported values: "NonIndexed", "Indexed"'],
    ),
    ({"backoffLimitPerIndex": 1}, ["spec.backoffLimitPerIndex: requires indexed completion mode"]),
    (
        {"maxFailedIndexes": 1},
        [
            "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified",
            "spec.maxFailedIndexes: requires indexed completion mode",
        ],
    ),
    (
        {"completionMode": "Indexed", "completions": 2, "maxFailedIndexes": 3, "backoffLimitPerIndex": 1},
        ["spec.maxFailedIndexes: must be less than or equal to completions"],
    ),
    (
        {"podReplacementPolicy": "X"},
        ['spec.podReplacementPolicy: Unsupported value: "X": supported values: "Failed", "TerminatingOrFailed"'],
    ),
    ({"managedBy": "x"}, ['spec.managedBy: must be a domain-prefixed path (such as "acme.io/foo")']),
    ({"managedBy": "a.b/" + "c" * 70}, ["spec.managedBy: Too long: may not be more than 63 bytes"]),
    (
        {"manualSelector": True},
        [
            "spec.selector: Required value",
            "spec.template.metadata.labels: `selector` does not match template `labels`",
        ],
    ),
    (
        {"selector": {"matchLabels": {"a": "b"}}},
        [
            "spec.selector: `selector` not auto-generated",
            "spec.template.metadata.labels: `selector` does not match template `labels`",
        ],
    ),
    ({"successPolicy": {"rules": [{"succeededCount": 1}]}}, ["spec.successPolicy: requires indexed completion mode"]),
    (
        {"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [0, 1]}}]}},
        ["spec.podFailurePolicy.rules[0].onExitCodes.values[0]: must not be 0 for the In operator"],
    ),
    (
        {"template": {"restartPolicy": "Always"}},
        ['spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"'],
    ),
    ({"template": {"containers": []}}, ["spec.template.spec.containers: Required value"]),
    (
        {"name": "a.b", "completionMode": "Indexed", "completions": 10},
        ["metadata.name: will not able to create pod with invalid DNS label: a.b-9"],
    ),
]


@pytest.mark.parametrize(("given", "expected"), REFUSED, ids=[str(given)[:60] for given, _ in REFUSED])
async def test_a_job_that_makes_no_sense_is_refused(server, namespace, given, expected):
    """Each field with its cause, in the API server's words and order."""
    answer = await server.call("POST", batch(namespace), job(**given), dryRun="All")
    if expected:
        assert causes(answer) == expected
    else:
        assert answer.status == 201, answer.json


async def test_a_name_that_is_no_label_is_remarked(server, namespace):
    """It is taken, with a warning: pods' host names come from it."""
    answer = await server.call("POST", batch(namespace), job("a.b"), dryRun="All")
    assert answer.status == 201
    assert "a DNS label is recommended: [must not contain dots]" in answer.headers["warning"]


async def test_a_manual_selector_is_taken_as_it_is(server, namespace):
    """Nothing is generated."""
    given = job(manualSelector=True, selector={"matchLabels": {"a": "b"}})
    given["spec"]["template"]["metadata"] = {"labels": {"a": "b"}}
    made = (await server.call("POST", batch(namespace), given, dryRun="All")).json
    assert made["spec"]["selector"] == {"matchLabels": {"a": "b"}}
    assert made["spec"]["template"]["metadata"] == {"labels": {"a": "b"}}


# --- changes

REQUIRED = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}
OPEN = {
    "nodeSelector": {"nodeSelector": {"a": "b"}},
    "tolerations": {"tolerations": [{"key": "a", "operator": "Exists"}]},
    "schedulingGates": {"schedulingGates": [{"name": "example.com/gate"}]},
    "nodeAffinity": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": REQUIRED}}},
    "resources": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
}
CLOSED = {
    "image": {"containers": [{"name": "c", "image": "other"}]},
    "restartPolicy": {"restartPolicy": "OnFailure"},
    "priorityClassName": {"priorityClassName": "high"},
    "terminationGracePeriodSeconds": {"terminationGracePeriodSeconds": 5},
    "podAntiAffinity": {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "z", "labelSelector": {}}]
            }
        }
    },
}


def template(spec):
    return {"spec": {"template": {"spec": spec}}}


@pytest.mark.parametrize("what", OPEN)
async def test_a_suspended_jobs_pods_may_still_be_directed(server, namespace, what):
    """Where they go and what they ask for, while none of them is there; the generation counts."""
    await create_job(server, namespace, suspend=True)
    changed = await patch(server, batch(namespace, "j"), template(OPEN[what]))
    assert changed.status == 200, changed.json
    assert changed.json["metadata"]["generation"] == 2


async def test_a_suspended_jobs_pods_may_be_labelled(server, namespace):
    """Labels and annotations of the template."""
    await create_job(server, namespace, suspend=True)
    given = {"metadata": {"labels": {"x": "y"}, "annotations": {"p": "q"}}}
    changed = await patch(server, batch(namespace, "j"), {"spec": {"template": given}})
    assert changed.json["spec"]["template"]["metadata"]["annotations"] == {"p": "q"}


@pytest.mark.parametrize("what", CLOSED)
async def test_the_rest_of_a_template_never_changes(server, namespace, what):
    """Also not while the Job is suspended."""
    await create_job(server, namespace, suspend=True)
    answer = await patch(server, batch(namespace, "j"), template(CLOSED[what]))
    assert causes(answer) == ["spec.template.spec: field is immutable"]


@pytest.mark.parametrize("what", ["nodeSelector", "resources"])
async def test_a_running_jobs_template_is_fixed(server, namespace, what):
    """Even if the same request suspends the Job; and until its pods are gone."""
    path = batch(namespace, "j")
    await create_job(server, namespace, runs={"run-ms": 60_000})
    await until(server, path, lambda found: found["status"].get("active"))
    assert causes(await patch(server, path, template(OPEN[what]))) == ["spec.template: field is immutable"]
    both = {"spec": {"suspend": True, **template(OPEN[what])["spec"]}}
    assert causes(await patch(server, path, both)) == ["spec.template: field is immutable"]
    assert (await patch(server, path, {"spec": {"suspend": True}})).status == 200
    await until(server, path, lambda found: conditions(found).get("Suspended") == ("True", "JobSuspended"))
    again = await until(server, path, lambda found: not found["status"].get("active"))
    assert "startTime" not in again["status"]
    assert (await patch(server, path, template(OPEN[what]))).status == 200


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"completions": 3}, ["spec.completions: field is immutable"]),
        ({"parallelism": 3}, []),
        ({"parallelism": -3}, [f"spec.parallelism: {NOT_NEGATIVE}"] * 2),
        ({"backoffLimit": 3}, []),
        ({"activeDeadlineSeconds": 100}, []),
        ({"ttlSecondsAfterFinished": 1}, []),
        ({"managedBy": "example.com/me"}, ["spec.managedBy: field is immutable"]),
        (
            {"completions": 9, "managedBy": "example.com/me"},
            ["spec.completions: field is immutable", "spec.managedBy: field is immutable"],
        ),
    ],
)
async def test_counts_may_change_and_identity_may_not(server, namespace, change, expected):
    """Parallelism, limits and times are open at any time."""
    await create_job(server, namespace, suspend=True)
    answer = await patch(server, batch(namespace, "j"), {"spec": change}, MERGE_PATCH)
    if expected:
        assert causes(answer) == expected
    else:
        assert answer.status == 200, answer.json


async def test_an_indexed_jobs_size_changes_as_one(server, namespace):
    """Completions together with parallelism."""
    path = batch(namespace, "j")
    await create_job(server, namespace, suspend=True, completionMode="Indexed", completions=2, parallelism=2)
    alone = await patch(server, path, {"spec": {"completions": 3}})
    assert causes(alone) == ["spec.completions: can only be modified in tandem with spec.parallelism"]
    assert (await patch(server, path, {"spec": {"completions": 3, "parallelism": 3}})).status == 200


STATUSES = [
    ({"active": -1}, [f"status.active: {NOT_NEGATIVE}"]),
    ({"active": 1, "ready": 2}, ["status.ready: cannot set more ready pods than active"]),
    (
        {"conditions": [{"type": "Complete", "status": "True"}]},
        [
            "status.completionTime: Required value: completionTime is required for Complete jobs",
            "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true "
            "condition",
            "status.startTime: Required value: startTime is required for finished job",
        ],
    ),
]


@pytest.mark.parametrize(("given", "expected"), STATUSES)
async def test_a_status_must_not_contradict_itself(server, namespace, given, expected):
    """Who manages Jobs in place of the Job controller is held to its rules."""
    await create_job(server, namespace, suspend=True, managedBy="example.com/me")
    answer = await patch(server, batch(namespace, "j", "status"), {"status": given}, MERGE_PATCH)
    assert causes(answer) == expected


async def test_a_job_that_is_managed_by_another_is_left_alone(server, namespace):
    """No pods, no status; a Job beside it runs."""
    await create_job(server, namespace, "theirs", managedBy="example.com/me", runs={"run-ms": 50})
    await create_job(server, namespace, "ours", runs={"run-ms": 50}, template={"nodeName": NODE})
    await until(server, batch(namespace, "ours"), lambda found: "Complete" in conditions(found))
    assert (await server.call("GET", batch(namespace, "theirs"))).json["status"] == {}


async def test_a_jobs_pods_are_its_template_and_its_own(server, namespace):
    """Name, labels, finalizer, owner; for an index also its annotation, label, host name and variable."""
    given: dict[str, Any] = {"completionMode": "Indexed", "completions": 1, "parallelism": 1, "backoffLimitPerIndex": 1}
    made = await create_job(server, namespace, runs={"run-ms": 60_000}, **given)
    found = await until(server, core(namespace, "pods"), lambda pods: pods["items"])
    (only,) = found["items"]
    metadata, spec, uid = only["metadata"], only["spec"], made["metadata"]["uid"]
    index = "batch.kubernetes.io/job-completion-index"
    assert metadata["generateName"] == "j-0-"
    assert metadata["name"].startswith("j-0-")
    assert metadata["labels"] == {UID: uid, NAME: "j", "controller-uid": uid, "job-name": "j", index: "0"}
    assert metadata["annotations"] == {
        "headgate.dev/run-ms": "60000",
        index: "0",
        "batch.kubernetes.io/job-index-failure-count": "0",
    }
    assert metadata["finalizers"] == ["batch.kubernetes.io/job-tracking"]
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid}
    assert metadata["ownerReferences"] == [{**owner, "controller": True, "blockOwnerDeletion": True}]
    assert spec["hostname"] == "j-0"
    field = {"apiVersion": "v1", "fieldPath": f"metadata.labels['{index}']"}
    assert spec["containers"][0]["env"] == [{"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": field}}]


async def test_less_parallelism_takes_pods_away(server, namespace):
    """They are not counted as failed; with more, new ones come."""
    path = batch(namespace, "j")
    await create_job(server, namespace, runs={"run-ms": 60_000}, parallelism=3, completions=3)
    await until(server, path, lambda found: found["status"].get("active") == 3)
    await patch(server, path, {"spec": {"parallelism": 1}}, STRATEGIC_PATCH)
    fewer = await until(server, path, lambda found: found["status"].get("active") == 1)
    assert "failed" not in fewer["status"]
    pods = await until(server, core(namespace, "pods"), lambda found: len(found["items"]) == 1)
    assert pods["items"][0]["metadata"].get("deletionTimestamp") is None
    await patch(server, path, {"spec": {"parallelism": 2}})
    await until(server, path, lambda found: found["status"].get("active") == 2)
