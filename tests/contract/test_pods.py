"""Pods: what admission adds and refuses, what an update may do, how one is deleted, and how one runs."""

import asyncio
from typing import Any

import pytest
from tests.contract.cases import MERGE_PATCH, core
from tests.contract.running import (
    NODE,
    UNKNOWN_UID,
    bind,
    causes,
    conditions,
    create_pod,
    patch,
    pod,
    until,
)
from tests.contract.samples import watching

pytestmark = pytest.mark.anyio

STAYING = [
    {"effect": "NoExecute", "key": f"node.kubernetes.io/{key}", "operator": "Exists", "tolerationSeconds": 300}
    for key in ("not-ready", "unreachable")
]
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
RUNTIMES = "/apis/node.k8s.io/v1/runtimeclasses"
FIXED = (
    "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


async def dry(server, namespace, **spec):
    """What the server makes of a pod that it does not keep."""
    return await server.call("POST", core(namespace, "pods"), pod(**spec), dryRun="All")


# --- creation


async def test_a_pod_is_filled_in(server, namespace):
    """Defaults, priority, the tolerations that let it stay for a while, and its first status."""
    made = await create_pod(server, namespace)
    container = made["spec"].pop("containers")[0]
    assert container["imagePullPolicy"] == "Always"
    assert made["spec"] == {
        "dnsPolicy": "ClusterFirst",
        "enableServiceLinks": True,
        "preemptionPolicy": "PreemptLowerPriority",
        "priority": 0,
        "restartPolicy": "Always",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "terminationGracePeriodSeconds": 30,
        "tolerations": STAYING,
    }
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert made["metadata"]["generation"] == 1


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("i", "Always"),
        ("i:latest", "Always"),
        ("i:1", "IfNotPresent"),
        ("r:5000/i", "Always"),
        ("i@sha256:" + "a" * 64, "IfNotPresent"),
    ],
)
async def test_the_pull_policy_follows_from_the_tag(server, namespace, image, policy):
    """What may move is pulled always."""
    answer = await dry(server, namespace, containers=[{"name": "c", "image": image}])
    assert answer.json["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("1000m", "1"),
        ("0.5", "500m"),
        ("1024Mi", "1Gi"),
        ("1000Mi", "1000Mi"),
        ("0.5Gi", "512Mi"),
        (1, "1"),
        ("1e3", "1e3"),
        ("1000", "1k"),
        ("100n", "1m"),
    ],
)
async def test_amounts_have_one_spelling(server, namespace, given, stored):
    """Quantities come back in their canonical form, whole thousandths at least."""
    answer = await dry(
        server, namespace, containers=[{"name": "c", "image": "i", "resources": {"requests": {"memory": given}}}]
    )
    assert answer.json["spec"]["containers"][0]["resources"] == {"requests": {"memory": stored}}


async def test_limits_are_requests_too(server, namespace):
    """And then the pod is Guaranteed."""
    limits = {"cpu": "1", "memory": "1Gi"}
    answer = await dry(server, namespace, containers=[{"name": "c", "image": "i", "resources": {"limits": limits}}])
    assert answer.json["spec"]["containers"][0]["resources"] == {"limits": limits, "requests": limits}
    assert answer.json["status"]["qosClass"] == "Guaranteed"


def container(**fields):
    return {"containers": [{"name": "c", "image": "i", **fields}]}


NAME_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
REQUIRED = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


def required(*terms):
    affinity = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": affinity}}


REFUSED = [
    ({"containers": []}, ["spec.containers: Required value"]),
    ({"containers": [{"name": "c"}]}, ["spec.containers[0].image: Required value"]),
    ({"containers": [{"image": "i"}]}, ["spec.containers[0].name: Required value"]),
    (container(name="C_"), [f"spec.containers[0].name: {NAME_TEXT}"]),
    (
        {"containers": [{"name": "c", "image": "i"}] * 2},
        ['spec.containers[1].name: Duplicate value: "c"'],
    ),
    (
        container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
        ["spec.containers[0].resources.requests: must be less than or equal to cpu limit of 1"],
    ),
    (
        container(resources={"requests": {"cpu": "-1"}}),
        ["spec.containers[0].resources.requests[cpu]: must be greater than or equal to 0"],
    ),
    (
        container(resources={"requests": {"example.com/gpu": "1"}}),
        ["spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources"],
    ),
    (
        container(resources={"requests": {"gpu": "1"}}),
        [
            "spec.containers[0].resources.requests[gpu]: must be a standard resource type or fully qualified",
            "spec.containers[0].resources.requests[gpu]: must be a standard resource for containers",
        ],
    ),
    (
        container(volumeMounts=[{"name": "v", "mountPath": "/x"}]),
        ['spec.containers[0].volumeMounts[0].name: Not found: "v"'],
    ),
    (
        {"tolerations": [{"operator": "Equal", "value": "x"}]},
        [
            "spec.tolerations[0].operator: operator must be Exists when `key` is empty, which means "
            '"match all values and all keys"'
        ],
    ),
    (
        {"tolerations": [{"key": "a", "operator": "Odd"}]},
        ['spec.tolerations[0].operator: Unsupported value: "Odd": supported values: "Equal", "Exists"'],
    ),
    (
        {"tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}]},
        ["spec.tolerations[0].effect: effect must be 'NoExecute' when `tolerationSeconds` is set"],
    ),
    ({"schedulingGates": [{"name": "a"}, {"name": "a"}]}, ['spec.schedulingGates[1]: Duplicate value: "a"']),
    (
        {"schedulingGates": [{"name": "a"}], "nodeName": "n"},
        ["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
    ),
    (required(), [f"{REQUIRED}: Required value: must have at least one node selector term"]),
    (
        required({"matchExpressions": [{"key": "a", "operator": "In"}]}),
        [
            f"{REQUIRED}[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' "
            "or 'NotIn'"
        ],
    ),
    ({"activeDeadlineSeconds": 0}, ["spec.activeDeadlineSeconds: must be between 1 and 2147483647, inclusive"]),
    ({"hostname": "A_b"}, [f"spec.hostname: {NAME_TEXT}"]),
    (
        {"dnsPolicy": "X"},
        [
            'spec.dnsPolicy: Unsupported value: "X": supported values: '
            '"ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"'
        ],
    ),
]


@pytest.mark.parametrize(("given", "expected"), REFUSED, ids=[str(given)[:60] for given, _ in REFUSED])
async def test_a_pod_that_makes_no_sense_is_refused(server, namespace, given, expected):
    """Each field with its cause, in the API server's words and order."""
    assert causes(await dry(server, namespace, **given)) == expected


async def test_an_amount_that_is_none_cannot_be_decoded(server, namespace):
    """400, not 422: the body does not become a pod."""
    answer = await dry(server, namespace, **container(resources={"requests": {"cpu": "x"}}))
    text = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    assert (answer.status, answer.json["message"]) == (400, f'Pod in version "v1" cannot be handled as a Pod: {text}')


# --- classes and limits


async def test_a_priority_class_gives_the_priority(server, namespace):
    """Its value and policy; the pod's own must be the same; a class that is absent is 403."""
    name = server.fresh_name("class")
    absent = await dry(server, namespace, priorityClassName=name)
    assert absent.status == 403
    assert absent.json["message"] == f'pods "p" is forbidden: no PriorityClass with name {name} was found'
    made = await server.call("POST", CLASSES, {"metadata": {"name": name}, "value": 7, "preemptionPolicy": "Never"})
    assert made.status == 201
    for _ in range(100):
        taken = await dry(server, namespace, priorityClassName=name)
        if taken.status == 201:
            break
        await asyncio.sleep(0.02)
    assert (taken.json["spec"]["priority"], taken.json["spec"]["preemptionPolicy"]) == (7, "Never")
    other = await dry(server, namespace, priorityClassName=name, priority=8)
    assert "the integer value of priority (8) must not be provided in pod spec" in other.json["message"]
    other = await dry(server, namespace, priorityClassName=name, preemptionPolicy="PreemptLowerPriority")
    assert "the string value of PreemptionPolicy (PreemptLowerPriority) must not" in other.json["message"]
    assert causes(await patch(server, f"{CLASSES}/{name}", {"value": 9})) == [
        "value: Forbidden: may not be changed in an update."
    ]


async def test_system_priorities_are_always_there(server, namespace):
    """They are used by name, seen, and not deleted; other names like theirs are refused."""
    taken = await dry(server, namespace, priorityClassName="system-node-critical")
    assert taken.json["spec"]["priority"] == 2_000_001_000
    kept = await server.call("DELETE", f"{CLASSES}/system-node-critical")
    assert kept.status == 403
    assert "this is a system priority class and cannot be deleted" in kept.json["message"]
    text = "system-x is not a known system priority class"
    assert causes(await server.call("POST", CLASSES, {"metadata": {"name": "system-x"}, "value": 1})) == [
        "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. "
        f"error: {text}"
    ]
    assert causes(await server.call("POST", CLASSES, {"metadata": {"name": "b"}, "value": 1_000_000_001})) == [
        "value: Forbidden: maximum allowed value of a user defined priority is 1000000000"
    ]


async def test_a_runtime_class_adds_overhead_and_places(server, namespace):
    """Its overhead, its selector where it does not contradict the pod's, its tolerations."""
    name = server.fresh_name("runtime")
    overhead = {"cpu": "250m"}
    tolerated = {"key": "k", "operator": "Exists"}
    given = {
        "metadata": {"name": name},
        "handler": "h",
        "overhead": {"podFixed": overhead},
        "scheduling": {"nodeSelector": {"a": "b"}, "tolerations": [tolerated]},
    }
    absent = await dry(server, namespace, runtimeClassName=name)
    assert absent.json["message"] == f'pods "p" is forbidden: pod rejected: RuntimeClass "{name}" not found'
    assert (await server.call("POST", RUNTIMES, given)).status == 201
    spec = (await dry(server, namespace, runtimeClassName=name)).json["spec"]
    assert (spec["overhead"], spec["nodeSelector"], spec["tolerations"]) == (
        overhead,
        {"a": "b"},
        [*STAYING, tolerated],
    )
    clash = await dry(server, namespace, runtimeClassName=name, nodeSelector={"a": "x"})
    assert (
        "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = x" in clash.json["message"]
    )
    other = await dry(server, namespace, runtimeClassName=name, overhead={"cpu": "1"})
    assert "Pod's Overhead doesn't match RuntimeClass's defined Overhead" in other.json["message"]
    alone = await dry(server, namespace, overhead={"cpu": "1"})
    assert "Pod Overhead set without corresponding RuntimeClass defined Overhead" in alone.json["message"]


async def test_a_limit_range_fills_in_and_bounds(server, namespace):
    """Defaults with a note of them, then bounds for containers and for whole pods."""
    limits = [
        {
            "type": "Container",
            "default": {"cpu": "2"},
            "defaultRequest": {"cpu": "500m", "memory": "1Gi"},
            "max": {"cpu": "3"},
            "min": {"cpu": "100m"},
            "maxLimitRequestRatio": {"cpu": "4"},
        },
        {"type": "Pod", "max": {"memory": "4Gi"}},
    ]
    made = await server.call(
        "POST", core(namespace, "limitranges"), {"metadata": {"name": "l"}, "spec": {"limits": limits}}
    )
    assert made.status == 201

    def asking(**resources):
        return container(resources=resources)

    for _ in range(100):
        if (await dry(server, namespace)).status == 403:
            break
        await asyncio.sleep(0.02)
    filled = (await dry(server, namespace, **asking(requests={"cpu": "1"}, limits={"memory": "1Gi"}))).json
    assert filled["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "2", "memory": "1Gi"},
        "requests": {"cpu": "1", "memory": "1Gi"},
    }
    note = {"kubernetes.io/limit-ranger": "LimitRanger plugin set: cpu limit for container c"}
    assert filled["metadata"]["annotations"] == note
    memory = {"memory": "1Gi"}
    for given, text in (
        (asking(), "maximum memory usage per Pod is 4Gi.  No limit is specified"),
        (asking(limits={"cpu": "4", **memory}), "maximum cpu usage per Container is 3, but limit is 4"),
        (
            asking(requests={"cpu": "100m"}, limits={"cpu": "2", **memory}),
            "cpu max limit to request ratio per Container is 4, but provided ratio is 20.000000",
        ),
        (asking(limits={"memory": "8Gi"}), "maximum memory usage per Pod is 4Gi, but limit is 8Gi"),
    ):
        answer = await dry(server, namespace, **given)
        assert (answer.status, answer.json["message"]) == (403, f'pods "p" is forbidden: {text}')


# --- updates


async def gated(server, namespace):
    """A pod with two gates, a selector, a deadline and a toleration."""
    return await create_pod(
        server,
        namespace,
        schedulingGates=[{"name": "a"}, {"name": "b"}],
        nodeSelector={"x": "y"},
        activeDeadlineSeconds=50,
        tolerations=[{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}],
    )


GROWN = {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10}
EXISTS_A, EXISTS_B = {"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}
UPDATES = [
    ({"nodeName": "n"}, [FIXED]),
    ({"containers": [{"name": "c", "image": "j"}]}, []),
    (
        {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "j"}]},
        ["spec.containers: Forbidden: pod updates may not add or remove containers"],
    ),
    ({"activeDeadlineSeconds": 60}, ["spec.activeDeadlineSeconds: must be less than or equal to previous value"]),
    ({"activeDeadlineSeconds": 40}, []),
    (
        {"activeDeadlineSeconds": None},
        ["spec.activeDeadlineSeconds: must not update from a positive integer to nil value"],
    ),
    ({"tolerations": [GROWN, {"key": "m", "operator": "Exists"}]}, []),
    (
        {"tolerations": [{"key": "m", "operator": "Exists"}]},
        ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
    ),
    ({"schedulingGates": [{"name": "b"}]}, []),
    (
        {"schedulingGates": [{"name": "a"}, {"name": "c"}]},
        ["spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'c'"],
    ),
    ({"nodeSelector": {"x": "y", "z": "w"}}, []),
    (
        {"nodeSelector": {"x": "n"}},
        ["spec.nodeSelector: only additions to spec.nodeSelector are allowed (no mutations or deletions)"],
    ),
    (required({"matchExpressions": [EXISTS_A]}), []),
    ({"terminationGracePeriodSeconds": 3}, [FIXED]),
    ({"restartPolicy": "Never"}, [FIXED]),
    ({"priority": 3}, [FIXED]),
]


@pytest.mark.parametrize(("change", "expected"), UPDATES, ids=[str(change)[:60] for change, _ in UPDATES])
async def test_a_gated_pod_changes_only_so(server, namespace, change, expected):
    """Images, shorter deadlines, more tolerations, fewer gates; and it may be directed more closely."""
    await gated(server, namespace)
    answer = await patch(server, core(namespace, "pods", "p"), {"spec": change}, MERGE_PATCH)
    if expected:
        assert causes(answer) == expected
    else:
        assert answer.status == 200, answer.json
        assert answer.json["metadata"]["generation"] == 2


async def test_a_gated_pods_node_terms_only_grow(server, namespace):
    """Each term gets more requirements; terms neither come nor go."""
    path = core(namespace, "pods", "p")
    await create_pod(server, namespace, schedulingGates=[{"name": "a"}], **required({"matchExpressions": [EXISTS_A]}))
    fewer = await patch(server, path, {"spec": required({"matchExpressions": [EXISTS_B]})}, MERGE_PATCH)
    assert causes(fewer) == [f"{REQUIRED}[0]: only additions are allowed (no mutations or deletions)"]
    second = required({"matchExpressions": [EXISTS_A]}, {"matchExpressions": [EXISTS_B]})
    text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
    assert causes(await patch(server, path, {"spec": second}, MERGE_PATCH)) == [f"{REQUIRED}: {text}"]
    more = required({"matchExpressions": [EXISTS_A, EXISTS_B]})
    assert (await patch(server, path, {"spec": more}, MERGE_PATCH)).status == 200


async def test_a_gated_pod_says_so_until_its_gates_are_gone(server, namespace):
    """The condition of a gated pod; without gates its direction is fixed, and none comes back."""
    path = core(namespace, "pods", "p")
    made = await gated(server, namespace)
    (condition,) = made["status"]["conditions"]
    del condition["lastTransitionTime"]
    assert condition == {
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": None,
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    }
    assert (await patch(server, path, {"spec": {"schedulingGates": None}}, MERGE_PATCH)).status == 200
    assert causes(await patch(server, path, {"spec": {"nodeSelector": {"x": "y", "q": "r"}}}, MERGE_PATCH)) == [FIXED]
    back = await patch(server, path, {"spec": {"schedulingGates": [{"name": "a"}]}}, MERGE_PATCH)
    assert causes(back) == [
        "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'a'"
    ]


async def test_a_pods_status_is_written_apart(server, namespace):
    """Not through the pod, and not the spec through the status; the quality of service stays."""
    path = core(namespace, "pods", "p")
    await create_pod(server, namespace)
    assert (await patch(server, path, {"status": {"phase": "Running"}})).json["status"]["phase"] == "Pending"
    status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    written = (await patch(server, f"{path}/status", {"spec": {"nodeName": "n"}, "status": status}, MERGE_PATCH)).json
    assert "nodeName" not in written["spec"]
    assert written["status"] == {
        "phase": "Running",
        "qosClass": "BestEffort",
        "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}],
    }
    other = await patch(server, f"{path}/status", {"status": {"qosClass": "Guaranteed"}}, MERGE_PATCH)
    assert causes(other) == ["status.qosClass: field is immutable"]


# --- deletion


async def test_an_unbound_pod_is_deleted_at_once(server, namespace):
    """Nothing has to be stopped; the response is the pod with its deletionTimestamp."""
    path = core(namespace, "pods", "p")
    await create_pod(server, namespace)
    for name, value in (("uid", UNKNOWN_UID), ("resourceVersion", "1")):
        assert (await server.call("DELETE", path, {"preconditions": {name: value}})).status == 409
    answer = await server.call("DELETE", path)
    assert answer.json["metadata"]["deletionGracePeriodSeconds"] == 0
    assert (await server.call("GET", path)).status == 404


async def test_a_bound_pod_waits_for_its_kubelet(server, namespace):
    """Its grace period may get shorter, never longer; none at all deletes it at once."""
    path = core(namespace, "pods", "p")
    await create_pod(server, namespace, nodeName="nobody-runs-this")
    periods = []
    for given in (None, {"gracePeriodSeconds": 5}, {"gracePeriodSeconds": 50}):
        await server.call("DELETE", path, given)
        metadata = (await server.call("GET", path)).json["metadata"]
        periods.append((metadata["deletionGracePeriodSeconds"], metadata["generation"]))
    assert periods == [(30, 2), (5, 2), (5, 2)]
    await server.call("DELETE", path, {"gracePeriodSeconds": 0})
    assert (await server.call("GET", path)).status == 404


async def test_an_ended_pod_is_deleted_at_once(server, namespace):
    """Also on a node; a finalizer still holds it."""
    path = core(namespace, "pods", "p")
    await create_pod(server, namespace, nodeName="nobody-runs-this", meta={"finalizers": ["example.com/hold"]})
    await patch(server, f"{path}/status", {"status": {"phase": "Succeeded"}})
    await server.call("DELETE", path)
    assert (await server.call("GET", path)).json["metadata"]["deletionGracePeriodSeconds"] == 0
    await patch(server, path, {"metadata": {"finalizers": None}}, MERGE_PATCH)
    assert (await server.call("GET", path)).status == 404


# --- running


def state(obj):
    """The kubelet's part of a pod's status, in one line."""
    status = obj["status"]
    containers = [
        f"{kind} {said.get('exitCode', said.get('reason', ''))}".strip()
        for each in status.get("containerStatuses") or ()
        for kind, said in each["state"].items()
    ]
    ready = conditions(obj).get("Ready", ("", ""))
    going = ["going"] if "deletionTimestamp" in obj["metadata"] else []
    return " ".join(
        [
            status["phase"],
            *containers,
            *(f"Ready={each}" for each in ready[:1] if each),
            *filter(None, ready[1:]),
            *going,
        ]
    )


RUNS = {
    "it succeeds": (
        "Never",
        {"run-ms": 100},
        ["Pending", "Running running Ready=True", "Succeeded terminated 0 Ready=False PodCompleted"],
    ),
    "it fails": (
        "Never",
        {"run-ms": 100, "exit-code": 3},
        ["Pending", "Running running Ready=True", "Failed terminated 3 Ready=False ContainersNotReady"],
    ),
    "it waits to be started again": (
        "OnFailure",
        {"run-ms": 100, "exit-code": 2},
        ["Pending", "Running running Ready=True", "Running waiting CrashLoopBackOff Ready=False ContainersNotReady"],
    ),
}


@pytest.mark.parametrize("title", RUNS)
async def test_a_pod_runs_as_its_annotations_say(server, namespace, title):
    """Phase, containers and condition Ready, one after the other."""
    policy, runs, expected = RUNS[title]
    since = (await server.call("GET", core(namespace, "pods"))).json["metadata"]["resourceVersion"]
    async with watching(server, core(namespace, "pods"), resourceVersion=since) as events:
        annotations = {f"headgate.dev/{name}": str(value) for name, value in runs.items()}
        await create_pod(server, namespace, meta={"annotations": annotations}, nodeName=NODE, restartPolicy=policy)
        seen: list[Any] = []
        while seen[-1:] != expected[-1:]:
            told = state((await events.next())["object"])
            if seen[-1:] != [told]:
                seen.append(told)
    assert seen == expected


async def test_a_deleted_running_pod_ends_and_goes(server, namespace):
    """Its containers are killed, which fails it, and then its object vanishes."""
    since = (await server.call("GET", core(namespace, "pods"))).json["metadata"]["resourceVersion"]
    async with watching(server, core(namespace, "pods"), resourceVersion=since) as events:
        await create_pod(server, namespace)
        await bind(server, namespace, "p")
        await until(server, core(namespace, "pods", "p"), lambda found: found["status"]["phase"] == "Running")
        await server.call("DELETE", core(namespace, "pods", "p"))
        seen: list[Any] = []
        gone = False
        while not gone:
            event = await events.next()
            gone = event["type"] == "DELETED"
            if seen[-1:] != [state(event["object"])]:
                seen.append(state(event["object"]))
    assert seen == [
        "Pending",
        "Running running Ready=True",
        "Running running Ready=True going",
        "Failed terminated 143 Ready=False ContainersNotReady going",
    ]
