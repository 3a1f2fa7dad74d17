"""
Whole lives of Jobs as a watch shows them, and the Events of each.

How many pods a status has counted when depends on how fast they ran. What is compared here does not: how it begins,
which conditions come in which order (`...` stands for the counts of that moment), and the whole last status.
"""

import asyncio
import re
from typing import Any

import anyio
import pytest
from tests.contract.cases import MERGE_PATCH, batch, core
from tests.contract.running import NODE, create_job, line, patch
from tests.contract.samples import watching

pytestmark = pytest.mark.anyio

SHORT, FAILING, LONG = {"run-ms": 200}, {"run-ms": 100, "exit-code": 1}, {"run-ms": 60_000}
INDEXED = {"completionMode": "Indexed", "completions": 3, "parallelism": 3}
EXIT_42 = {"operator": "In", "values": [42]}

# The Job, then a summary of its statuses (a line that begins with a bar belongs to the one before), then
# the Events with how many of them there are.
STORIES = {
    "a pod succeeds": (
        {"runs": SHORT},
        """
        -
        active=1 startTime
        ... | SuccessCriteriaMet CompletionsReached
        succeeded=1 startTime completionTime
        | SuccessCriteriaMet CompletionsReached | Complete CompletionsReached
        """,
        {"SuccessfulCreate": 1, "Completed": 1},
    ),
    "two at a time until there are five": (
        {"runs": SHORT, "parallelism": 2, "completions": 5},
        """
        -
        active=2 startTime
        ... | SuccessCriteriaMet CompletionsReached
        succeeded=5 startTime completionTime
        | SuccessCriteriaMet CompletionsReached | Complete CompletionsReached
        """,
        {"SuccessfulCreate": 5, "Completed": 1},
    ),
    "a failure too many": (
        {"runs": FAILING, "backoffLimit": 0},
        """
        -
        active=1 startTime
        ... | FailureTarget BackoffLimitExceeded
        failed=1 startTime | FailureTarget BackoffLimitExceeded | Failed BackoffLimitExceeded
        """,
        {"SuccessfulCreate": 1, "BackoffLimitExceeded": 1},
    ),
    "each index once": (
        {"runs": SHORT, **INDEXED},
        """
        -
        active=3 startTime
        ... | SuccessCriteriaMet CompletionsReached
        succeeded=3 completedIndexes=0-2 startTime completionTime
        | SuccessCriteriaMet CompletionsReached | Complete CompletionsReached
        """,
        {"SuccessfulCreate": 3, "Completed": 1},
    ),
    "each index fails for itself": (
        {"runs": FAILING, **INDEXED, "backoffLimitPerIndex": 0},
        """
        -
        active=3 startTime
        ... | FailureTarget FailedIndexes
        failed=3 failedIndexes=0-2 startTime | FailureTarget FailedIndexes | Failed FailedIndexes
        """,
        {"SuccessfulCreate": 3, "FailedIndexes": 1},
    ),
    "too many indexes fail": (
        {"runs": FAILING, **INDEXED, "backoffLimitPerIndex": 0, "maxFailedIndexes": 1},
        """
        -
        active=3 startTime
        ... | FailureTarget MaxFailedIndexesExceeded
        failed=3 failedIndexes=0-2 startTime | FailureTarget MaxFailedIndexesExceeded | Failed MaxFailedIndexesExceeded
        """,
        {"SuccessfulCreate": 3, "MaxFailedIndexesExceeded": 1},
    ),
    "a success policy is met": (
        {"runs": SHORT, **INDEXED, "successPolicy": {"rules": [{"succeededIndexes": "0,2"}]}},
        """
        -
        active=3 startTime
        ... | SuccessCriteriaMet SuccessPolicy
        succeeded=3 completedIndexes=0-2 startTime completionTime
        | SuccessCriteriaMet SuccessPolicy | Complete SuccessPolicy
        """,
        {"SuccessfulCreate": 3, "Completed": 1},
    ),
    "a failure that the policy does not forgive": (
        {
            "runs": {"run-ms": 100, "exit-code": 42},
            "podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": EXIT_42}]},
        },
        """
        -
        active=1 startTime
        ... | FailureTarget PodFailurePolicy
        failed=1 startTime | FailureTarget PodFailurePolicy | Failed PodFailurePolicy
        """,
        {"SuccessfulCreate": 1, "PodFailurePolicy": 1},
    ),
    "nothing to do": (
        {"completions": 0},
        """
        -
        ... | SuccessCriteriaMet CompletionsReached
        startTime completionTime | SuccessCriteriaMet CompletionsReached | Complete CompletionsReached
        """,
        {"Completed": 1},
    ),
    "any success will do": (
        {"runs": SHORT, "parallelism": 2},
        """
        -
        active=2 startTime
        ... | SuccessCriteriaMet CompletionsReached
        succeeded=2 startTime completionTime
        | SuccessCriteriaMet CompletionsReached | Complete CompletionsReached
        """,
        {"SuccessfulCreate": 2, "Completed": 1},
    ),
}


async def lived(server, namespace, spec):
    """The gist of a Job's statuses up to its end."""
    listed = (await server.call("GET", batch(namespace))).json
    since = listed["metadata"]["resourceVersion"]
    async with watching(server, batch(namespace), resourceVersion=since) as events:
        await create_job(server, namespace, template={"nodeName": NODE}, **spec)
        seen: list[Any] = []
        while not seen or not any(f"{end} " in seen[-1] for end in ("| Complete", "| Failed")):
            told = line((await events.next())["object"])
            if not seen or seen[-1] != told:
                seen.append(told)
    return gist(seen)


def gist(lines):
    """The beginning, each new set of conditions, and the end."""
    *middle, last = lines
    told: list[Any] = []
    for each in middle:
        counts, bar, conditions = each.partition(" | ")
        short = f"... | {conditions}" if bar else counts
        if (bar or len(told) < 2) and told[-1:] != [short]:
            told.append(short)
    return [*told, last]


async def events_of(server, namespace, expected):
    """How often each reason was recorded for a Job: the expected counts, or the last ones if these did not come."""
    for _ in range(100):
        counts: dict[str, Any] = {}
        for each in (await server.call("GET", core(namespace, "events"))).json["items"]:
            if each["involvedObject"]["kind"] == "Job":
                counts[each["reason"]] = counts.get(each["reason"], 0) + each["count"]
        if counts == expected:
            break
        await asyncio.sleep(0.1)
    return counts


@pytest.fixture(scope="session")
async def lives(server):
    """All stories at once: each in a namespace of its own."""
    found = {}

    async def live(title, spec, told):
        namespace = await server.fresh_namespace()
        found[title] = await lived(server, namespace, spec), await events_of(server, namespace, told)

    async with anyio.create_task_group() as group:
        for title, (spec, _, told) in STORIES.items():
            group.start_soon(live, title, spec, told)
    return found


@pytest.mark.parametrize("title", STORIES)
async def test_a_job_goes_through_these_statuses(lives, title):
    """What decides the end is written before the end, and a pod is named before it is counted."""
    expected = [each.strip() for each in re.sub(r"\n +\| ", " | ", STORIES[title][1]).strip().splitlines()]
    assert lives[title][0] == expected


@pytest.mark.parametrize("title", STORIES)
async def test_a_job_tells_what_it_did(lives, title):
    """Its Events, for `kubectl describe`."""
    assert lives[title][1] == STORIES[title][2]


async def test_a_job_is_suspended_and_resumed(server, namespace):
    """Its pods are deleted without being counted, its startTime is cleared and set again; Events record both."""
    since = (await server.call("GET", batch(namespace))).json["metadata"]["resourceVersion"]
    path = batch(namespace, "j")
    async with watching(server, batch(namespace), resourceVersion=since) as events:

        async def up_to(wanted):
            seen: list[Any] = []
            while not seen or seen[-1] != wanted:
                told = line((await events.next())["object"])
                if not seen or seen[-1] != told:
                    seen.append(told)
            return seen

        await create_job(server, namespace, runs=LONG, template={"nodeName": NODE}, parallelism=2, completions=2)
        assert (await up_to("active=2 ready=2 startTime"))[:2] == ["-", "active=2 startTime"]
        await patch(server, path, {"spec": {"suspend": True}}, MERGE_PATCH)
        assert (await up_to("- | Suspended JobSuspended"))[-2:] == [
            "terminating=2 | Suspended JobSuspended",
            "- | Suspended JobSuspended",
        ]
        await patch(server, path, {"spec": {"suspend": False}}, MERGE_PATCH)
        await up_to("active=2 startTime | Suspended=False JobResumed")
    told = {"SuccessfulCreate": 4, "SuccessfulDelete": 2, "Suspended": 1, "Resumed": 1}
    assert await events_of(server, namespace, told) == told


async def test_a_job_runs_into_its_deadline(server, namespace):
    """The deadline counts from the start; its pods are failed, and the Job waits until they are gone."""
    await create_job(server, namespace, runs=LONG, template={"nodeName": NODE}, activeDeadlineSeconds=1)
    for _ in range(300):
        found = (await server.call("GET", batch(namespace, "j"))).json
        if "| Failed" in line(found):
            break
        await asyncio.sleep(0.05)
    assert line(found) == "failed=1 startTime | FailureTarget DeadlineExceeded | Failed DeadlineExceeded"
    assert found["status"]["conditions"][1]["message"] == "Job was active longer than specified deadline"


async def test_a_finished_job_is_deleted_after_its_time(server, namespace):
    """With ttlSecondsAfterFinished, pods included."""
    await create_job(server, namespace, runs=SHORT, template={"nodeName": NODE}, ttlSecondsAfterFinished=1)
    for _ in range(300):
        left = (await server.call("GET", core(namespace, "pods"))).json["items"]
        if (await server.call("GET", batch(namespace, "j"))).status == 404 and not left:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"still there: {left}")


@pytest.mark.parametrize(("policy", "pods"), [("Background", 0), ("Foreground", 0), ("Orphan", 1)])
async def test_a_deleted_job_takes_its_pods_or_leaves_them(server, namespace, policy, pods):
    """By propagation policy; a remaining pod has no owner, and no finalizer that no controller would remove."""
    await create_job(server, namespace, runs=LONG, template={"nodeName": NODE})
    for _ in range(300):
        if (await server.call("GET", core(namespace, "pods"))).json["items"]:
            break
        await asyncio.sleep(0.05)
    await server.call("DELETE", batch(namespace, "j"), {"propagationPolicy": policy})
    for _ in range(300):
        left = (await server.call("GET", core(namespace, "pods"))).json["items"]
        gone = (await server.call("GET", batch(namespace, "j"))).status == 404
        settled = all("finalizers" not in each["metadata"] for each in left)
        if gone and settled and len(left) == pods:
            break
        await asyncio.sleep(0.05)
    assert (gone, len(left)) == (True, pods)
    assert all("ownerReferences" not in each["metadata"] for each in left)
