"""Eviction: a deletion that checks the pod's disruption budget, and the status of budgets that it uses."""

import pytest
from tests.contract.cases import MERGE_PATCH, core, status
from tests.contract.running import UNKNOWN_UID, causes, create_job, create_pod, patch, until

pytestmark = pytest.mark.anyio

DONE = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
VIOLATES = "Cannot evict pod as it would violate the pod's disruption budget."


def budgets(namespace, *rest):
    return "/".join(["/apis/policy/v1/namespaces", namespace, "poddisruptionbudgets", *rest])


async def evict(server, namespace, name="p", *, dry=False, **body):
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, **body}
    query = {"dryRun": "All"} if dry else {}
    return await server.call("POST", core(namespace, "pods", name, "eviction"), eviction, **query)


async def running(server, namespace, *names, ready=True):
    """Pods of the app `x` that run where no kubelet meddles."""
    for name in names:
        await create_pod(server, namespace, name, meta={"labels": {"app": "x"}}, nodeName="nobody-runs-this")
        said = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True" if ready else "False"}]}
        await patch(server, core(namespace, "pods", name, "status"), {"status": said})


async def budget(server, namespace, name="b", *, counts, **spec):
    """A budget for the app `x`, once the disruption controller has counted: (healthy, desired, allowed, expected)."""
    given = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "x"}}, **spec}}
    assert (await server.call("POST", budgets(namespace), given)).status == 201
    return await counted(server, namespace, name, counts)


async def counted(server, namespace, name, counts):
    """A budget once its status has these counts."""
    fields = ("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods")

    def holds(found):
        seen = found["status"]
        current = seen.get("observedGeneration") == found["metadata"]["generation"]
        return current and tuple(seen[field] for field in fields) == counts

    return await until(server, budgets(namespace, name), holds)


def violation(message):
    """The whole refusal by a budget."""
    return status(429, "TooManyRequests", VIOLATES, {"causes": [{"reason": "DisruptionBudget", "message": message}]})


async def test_without_a_budget_it_is_a_deletion(server, namespace):
    """An unbound pod is gone; an absent one is 404."""
    await create_pod(server, namespace)
    assert (await evict(server, namespace)).json == DONE
    assert (await server.call("GET", core(namespace, "pods", "p"))).status == 404
    assert (await evict(server, namespace)).status == 404


async def test_an_evicted_pod_says_why_it_goes(server, namespace):
    """The condition DisruptionTarget, and the deletion with its grace period."""
    await running(server, namespace, "p")
    assert (await evict(server, namespace, deleteOptions={"gracePeriodSeconds": 7})).json == DONE
    found = (await server.call("GET", core(namespace, "pods", "p"))).json
    assert found["metadata"]["deletionGracePeriodSeconds"] == 7
    condition = next(each for each in found["status"]["conditions"] if each["type"] == "DisruptionTarget")
    assert (condition["status"], condition["reason"], condition["message"]) == (
        "True",
        "EvictionByEvictionAPI",
        "Eviction API: evicting",
    )


async def test_preconditions_and_dry_runs_hold(server, namespace):
    """A wrong uid or version is 409; a dry run, requested in either way, leaves the pod."""
    await create_pod(server, namespace)
    for wrong in ({"uid": UNKNOWN_UID}, {"resourceVersion": "1"}):
        assert (await evict(server, namespace, deleteOptions={"preconditions": wrong})).status == 409
    assert (await evict(server, namespace, dry=True)).json == DONE
    assert (await evict(server, namespace, deleteOptions={"dryRun": ["All"]})).json == DONE
    left = (await server.call("GET", core(namespace, "pods", "p"))).json
    assert "deletionTimestamp" not in left["metadata"]
    assert "conditions" not in left["status"]


async def test_an_eviction_names_its_pod(server, namespace):
    """Another name, or none, is 400."""
    await create_pod(server, namespace)
    for metadata in ({"name": "q"}, {}):
        answer = await evict(server, namespace, metadata=metadata)
        assert answer.json == status(400, "BadRequest", "name in URL does not match name in Eviction object")


async def test_a_budget_allows_as_many_as_it_can_spare(server, namespace):
    """Each eviction takes one, at once; then it is 429 with the counts, also for a dry run."""
    await running(server, namespace, "a", "b", "c")
    said = await budget(server, namespace, minAvailable=2, counts=(3, 2, 1, 3))
    (condition,) = said["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == (
        "DisruptionAllowed",
        "True",
        "SufficientPods",
    )
    assert (await evict(server, namespace, "a", dry=True)).json == DONE
    assert (await evict(server, namespace, "a")).json == DONE
    spent = await evict(server, namespace, "b")
    assert spent.status == 429
    assert spent.json["message"] == VIOLATES
    said = await counted(server, namespace, "b", (2, 2, 0, 3))
    assert said["status"]["conditions"][0]["reason"] == "InsufficientPods"
    refused = violation("The disruption budget b needs 2 healthy pods and has 2 currently")
    assert (await evict(server, namespace, "b")).json == refused
    assert (await evict(server, namespace, "b", dry=True)).json == refused


async def test_who_does_not_run_is_not_asked_for(server, namespace):
    """Pods that are pending, have ended, or are going already."""
    await running(server, namespace, "a", "ended")
    await patch(server, core(namespace, "pods", "ended", "status"), {"status": {"phase": "Succeeded"}})
    await create_pod(server, namespace, "pending", meta={"labels": {"app": "x"}})
    await budget(server, namespace, minAvailable=5, counts=(2, 5, 0, 3))
    for name in ("pending", "ended"):
        assert (await evict(server, namespace, name)).json == DONE
    assert (await evict(server, namespace, "a")).status == 429
    await server.call("DELETE", core(namespace, "pods", "a"))
    assert (await evict(server, namespace, "a")).json == DONE


async def test_a_pod_that_is_not_ready_may_go_while_the_others_are(server, namespace):
    """With the default policy only while the budget is met; with AlwaysAllow always."""
    await running(server, namespace, "a")
    await running(server, namespace, "b", "c", ready=False)
    await budget(server, namespace, minAvailable=1, counts=(1, 1, 0, 3))
    assert (await evict(server, namespace, "b")).json == DONE
    assert (await evict(server, namespace, "a")).status == 429
    more = {"spec": {"minAvailable": 2}}
    await patch(server, budgets(namespace, "b"), more, MERGE_PATCH)
    await counted(server, namespace, "b", (1, 2, 0, 3))
    assert (await evict(server, namespace, "c")).status == 429
    await patch(server, budgets(namespace, "b"), {"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}}, MERGE_PATCH)
    await counted(server, namespace, "b", (1, 2, 0, 3))
    assert (await evict(server, namespace, "c")).json == DONE


async def test_two_budgets_are_one_too_many(server, namespace):
    """500: it is undefined which of them to use."""
    await running(server, namespace, "a")
    await budget(server, namespace, "b", minAvailable=0, counts=(1, 0, 1, 1))
    await budget(server, namespace, "c", minAvailable=0, counts=(1, 0, 1, 1))
    answer = await evict(server, namespace, "a")
    assert (answer.status, answer.json["message"]) == (
        500,
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
    )


async def test_a_share_of_pods_without_a_controller_is_nothing(server, namespace):
    """No controller expects them, so none of them may be evicted."""
    await running(server, namespace, "a", "b")
    await budget(server, namespace, maxUnavailable="50%", counts=(2, 0, 0, 0))
    answer = await evict(server, namespace, "a")
    assert answer.json == violation("The disruption budget b does not allow evicting pods currently")


async def test_a_share_of_a_jobs_pods_cannot_be_told(server, namespace):
    """A Job has no scale: the budget reports that it failed to count, and allows nothing."""
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": UNKNOWN_UID, "controller": True}
    made = await create_job(server, namespace, suspend=True, managedBy="example.com/me")
    owner["uid"] = made["metadata"]["uid"]
    meta = {"labels": {"app": "x"}, "ownerReferences": [owner]}
    await create_pod(server, namespace, meta=meta, nodeName="nobody-runs-this")
    given = {"metadata": {"name": "b"}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "x"}}}}
    await server.call("POST", budgets(namespace), given)
    said = await until(server, budgets(namespace, "b"), lambda found: found["status"].get("conditions"))
    (condition,) = said["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "SyncFailed")
    assert condition["message"] == "jobs.batch does not implement the scale subresource"


PERCENT = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"minAvailable": "some"}, [f"spec.minAvailable: {PERCENT}"]),
        ({"maxUnavailable": -1}, ["spec.maxUnavailable: must be greater than or equal to 0"]),
        ({"minAvailable": 1, "maxUnavailable": 1}, ["spec: minAvailable and maxUnavailable cannot be both set"]),
        ({"minAvailable": "150%"}, ["spec.minAvailable: must not be greater than 100%"]),
        (
            {"minAvailable": 1, "unhealthyPodEvictionPolicy": "X"},
            [
                'spec.unhealthyPodEvictionPolicy: Unsupported value: "X": supported values: '
                '"AlwaysAllow", "IfHealthyBudget"'
            ],
        ),
        (
            {"minAvailable": 1, "selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            [
                "spec.selector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' "
                "or 'NotIn'"
            ],
        ),
    ],
)
async def test_a_budget_is_a_count_or_a_share(server, namespace, spec, expected):
    """Not a word, not below zero, not both at once."""
    answer = await server.call("POST", budgets(namespace), {"metadata": {"name": "b"}, "spec": spec}, dryRun="All")
    assert causes(answer) == expected
