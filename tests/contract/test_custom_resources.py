"""Custom resources: what the schemas of Kueue's kinds fill in, drop and refuse, and what their CEL rules say."""

import pytest
from tests.contract.cases import MERGE_PATCH, UNCHECKED, condition, invalid, kueue, status, told, workload

pytestmark = pytest.mark.anyio

SUBDOMAIN = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
KINDS = {
    "workloads": "Workload",
    "clusterqueues": "ClusterQueue",
    "localqueues": "LocalQueue",
    "resourceflavors": "ResourceFlavor",
    "cohorts": "Cohort",
    "topologies": "Topology",
    "admissionchecks": "AdmissionCheck",
    "workloadpriorityclasses": "WorkloadPriorityClass",
}
NAMESPACED = {"workloads", "localqueues"}
CPU = {"name": "cpu", "nominalQuota": "1"}


def pod_set(name="main", **fields):
    """A pod set without requests."""
    return {"name": name, "count": 1, "template": {"spec": {"containers": [{"name": "c"}]}}, **fields}


def groups(*resources, covered=("cpu",)):
    """One resource group with one flavor."""
    return [{"coveredResources": list(covered), "flavors": [{"name": "f", "resources": list(resources or (CPU,))}]}]


@pytest.fixture
async def create(server, namespace):
    """Create an object of a plural with a spec (or whole content), under a name of its own."""

    async def send(plural, spec=None, name="", **query):
        name = name or server.fresh_name("x")
        body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": KINDS[plural], "metadata": {"name": name}}
        if spec is not None:
            body |= spec if plural == "workloadpriorityclasses" else {"spec": spec}
        path = kueue(plural, namespace=namespace if plural in NAMESPACED else "")
        return await server.call("POST", path, body, **query)

    return send


DEFAULTS = [
    ("workloads", {}, {"active": True}),
    (
        "workloads",
        {"podSets": [{"template": {"spec": {"containers": [{"name": "c"}]}}}]},
        {
            "active": True,
            "podSets": [{"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}],
        },
    ),
    ("localqueues", {"clusterQueue": "q"}, {"clusterQueue": "q", "stopPolicy": "None"}),
    ("localqueues", {"fairSharing": {}}, {"fairSharing": {"weight": 1}, "stopPolicy": "None"}),
    (
        "clusterqueues",
        {"preemption": {"reclaimWithinCohort": "Any"}},
        {
            "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
            "preemption": {
                "borrowWithinCohort": {"policy": "Never"},
                "reclaimWithinCohort": "Any",
                "withinClusterQueue": "Never",
            },
            "queueingStrategy": "BestEffortFIFO",
            "stopPolicy": "None",
        },
    ),
]


@pytest.mark.parametrize(
    ("plural", "given", "stored"), DEFAULTS, ids=[f"{case[0]}-{n}" for n, case in enumerate(DEFAULTS)]
)
async def test_defaults_are_filled_in(create, plural, given, stored):
    """Also below what was given, and below defaults; never a whole spec."""
    assert (await create(plural, given)).json["spec"] == stored
    assert "spec" not in (await create(plural)).json


async def test_null_is_as_if_left_out(create):
    """A null takes the default, or goes."""
    spec = {"active": None, "priority": None, "podSets": [pod_set(minCount=None, count=None)]}
    assert (await create("workloads", spec)).json["spec"] == {"active": True, "podSets": [pod_set(count=1)]}


@pytest.mark.parametrize("validation", ["Ignore", "Warn", "Strict"])
async def test_unknown_fields_are_pruned(create, validation):
    """Dropped, with a remark, or refused; the paths are sorted."""
    spec = {"queueName": "lq", "zz": 1, "aa": 2, "podSets": [pod_set(more=1)]}
    answer = await create("workloads", spec, fieldValidation=validation)
    paths = ["spec.aa", "spec.podSets[0].more", "spec.zz"]
    if validation == "Strict":
        problems = ", ".join(f'unknown field "{path}"' for path in paths)
        assert answer.json["message"] == (
            f'Workload in version "v1beta2" cannot be handled as a Workload: strict decoding error: {problems}'
        )
        return
    assert answer.json["spec"] == {"active": True, "podSets": [pod_set()], "queueName": "lq"}
    assert ("warning" in answer.headers) is (validation == "Warn")


WRONG_TYPE = "Invalid value: {0}: {1} in body must be of type {2}: {0}"
REFUSED = [
    (
        "wrong types",
        "workloads",
        {"queueName": 5, "active": "yes", "priority": "high"},
        [
            ("TypeInvalid", "spec.queueName", WRONG_TYPE.format('"integer"', "spec.queueName", "string")),
            ("TypeInvalid", "spec.active", WRONG_TYPE.format('"string"', "spec.active", "boolean")),
            ("TypeInvalid", "spec.priority", WRONG_TYPE.format('"string"', "spec.priority", "integer")),
            UNCHECKED,
        ],
    ),
    (
        "a spec that is none",
        "workloads",
        "x",
        [("TypeInvalid", "spec", WRONG_TYPE.format('"string"', "spec", "object")), UNCHECKED],
    ),
    (
        "a required field",
        "workloads",
        {"podSets": [{}]},
        [("Required", "spec.podSets[0].template", "Required value"), UNCHECKED],
    ),
    (
        "bounds of numbers, and a rule about them",
        "workloads",
        {"podSets": [pod_set(count=-1, minCount=0)]},
        [
            (
                "Invalid",
                "spec.podSets[0].count",
                "Invalid value: -1: spec.podSets[0].count in body should be greater than or equal to 0",
            ),
            (
                "Invalid",
                "spec.podSets[0].minCount",
                "Invalid value: 0: spec.podSets[0].minCount in body should be greater than or equal to 1",
            ),
            ("Invalid", "spec.podSets[0]", "Invalid value: minCount should be positive and less or equal to count"),
        ],
    ),
    (
        "too few items",
        "workloads",
        {"podSets": []},
        [("Invalid", "spec.podSets", "Invalid value: 0: spec.podSets in body should have at least 1 items")],
    ),
    (
        "too many items",
        "workloads",
        {"podSets": [pod_set(f"p{number}") for number in range(20)]},
        [("TooMany", "spec.podSets", "Too many: 20: must have at most 18 items"), UNCHECKED],
    ),
    (
        "a key twice",
        "workloads",
        {"podSets": [pod_set(), pod_set()]},
        [("Duplicate", "spec.podSets[1]", 'Duplicate value: {"name":"main"}')],
    ),
    (
        "enumerations",
        "clusterqueues",
        {"queueingStrategy": "Nope"},
        [
            (
                "NotSupported",
                "spec.queueingStrategy",
                'Unsupported value: "Nope": supported values: "StrictFIFO", "BestEffortFIFO"',
            ),
            UNCHECKED,
        ],
    ),
    (
        "a long text",
        "workloads",
        {"queueName": "q" * 254},
        [("TooLong", "spec.queueName", "Too long: may not be more than 253 bytes"), UNCHECKED],
    ),
    (
        "a pattern",
        "workloads",
        {"queueName": "Q_q"},
        [("Invalid", "spec.queueName", f"Invalid value: \"Q_q\": spec.queueName in body should match '{SUBDOMAIN}'")],
    ),
    (
        "an amount",
        "localqueues",
        {"fairSharing": {"weight": "x"}},
        [
            (
                "Invalid",
                "spec.fairSharing.weight",
                f"Invalid value: \"x\": spec.fairSharing.weight in body should match '{QUANTITY}'",
            )
        ],
    ),
    (
        "a rule of an item",
        "workloads",
        {"podSets": [pod_set(minCount=2)]},
        [("Invalid", "spec.podSets[0]", "Invalid value: minCount should be positive and less or equal to count")],
    ),
    (
        "a rule of two fields",
        "workloads",
        {"priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "c"}},
        [("Invalid", "spec", "Invalid value: priority should not be nil when priorityClassRef is set")],
    ),
    (
        "flavors that do not cover the resources",
        "clusterqueues",
        {"resourceGroups": groups(CPU, {"name": "memory", "nominalQuota": "1"})},
        [
            (
                "Invalid",
                "spec.resourceGroups[0]",
                "Invalid value: flavors must have the same number of resources as the coveredResources",
            )
        ],
    ),
    (
        "a borrowing limit without a cohort",
        "clusterqueues",
        {"resourceGroups": groups({**CPU, "borrowingLimit": "1"})},
        [("Invalid", "spec", "Invalid value: borrowingLimit must be nil when cohort is empty")],
    ),
    (
        "policies that contradict each other",
        "clusterqueues",
        {"preemption": {"reclaimWithinCohort": "Never", "borrowWithinCohort": {"policy": "LowerPriority"}}},
        [
            (
                "Invalid",
                "spec.preemption",
                "Invalid value: reclaimWithinCohort=Never and borrowWithinCohort.Policy!=Never",
            )
        ],
    ),
    (
        "a toleration of everything that is none",
        "resourceflavors",
        {"tolerations": [{"operator": "Equal"}]},
        [
            (
                "Invalid",
                "spec.tolerations",
                "Invalid value: operator must be Exists when 'key' is empty, which means 'match all values and all "
                "keys'",
            )
        ],
    ),
    (
        "levels that are not unique",
        "topologies",
        {"levels": [{"nodeLabel": "x"}, {"nodeLabel": "x"}]},
        [("Invalid", "spec.levels", "Invalid value: must be unique")],
    ),
    (
        "a hostname above another level",
        "topologies",
        {"levels": [{"nodeLabel": "kubernetes.io/hostname"}, {"nodeLabel": "x"}]},
        [
            (
                "Invalid",
                "spec.levels",
                "Invalid value: the kubernetes.io/hostname label can only be used at the lowest level of topology",
            )
        ],
    ),
    (
        "a kind without rules",
        "workloadpriorityclasses",
        {},
        [("Required", "value", "Required value")],
    ),
]


@pytest.mark.parametrize(
    ("plural", "spec", "causes"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
async def test_what_breaks_the_schema_is_422(server, create, plural, spec, causes):
    """One cause for each mistake, with its path; CEL rules are looked at when the rest is in order."""
    name = server.fresh_name("bad")
    answer = await create(plural, spec, name)
    details = {"name": name, "group": "kueue.x-k8s.io", "kind": KINDS[plural]}
    assert told(answer.json) == invalid(f'{KINDS[plural]}.kueue.x-k8s.io "{name}"', details, *causes)


WEBHOOKS_ONLY = {
    "negative quota": ("clusterqueues", {"resourceGroups": groups({"name": "cpu", "nominalQuota": "-1"})}),
    "lending limit without a cohort": ("clusterqueues", {"resourceGroups": groups({**CPU, "lendingLimit": "1"})}),
    "resources in another order": (
        "clusterqueues",
        {"resourceGroups": groups({"name": "memory", "nominalQuota": "1"}, CPU, covered=("cpu", "memory"))},
    ),
    "a resource in two groups": ("clusterqueues", {"resourceGroups": groups() + groups()}),
    "two reducible pod sets": (
        "workloads",
        {"podSets": [pod_set("a", count=2, minCount=1), pod_set("b", count=2, minCount=1)]},
    ),
    "a negative weight": ("localqueues", {"clusterQueue": "q", "fairSharing": {"weight": "-1"}}),
    "a node label that is none": ("resourceflavors", {"nodeLabels": {"-a": "b"}}),
}


@pytest.mark.parametrize("case", WEBHOOKS_ONLY)
async def test_what_only_a_webhook_would_refuse_is_taken(create, case):
    """An API server has the definitions and no webhooks: such objects are accepted, and Headgate interprets them."""
    plural, spec = WEBHOOKS_ONLY[case]
    assert (await create(plural, spec)).status == 201


IMMUTABLE = [
    ("localqueues", {"clusterQueue": "q"}, {"clusterQueue": "r"}, "spec.clusterQueue", '"r": field is immutable'),
    (
        "admissionchecks",
        {"controllerName": "x"},
        {"controllerName": "y"},
        "spec.controllerName",
        '"y": field is immutable',
    ),
    (
        "topologies",
        {"levels": [{"nodeLabel": "x"}]},
        {"levels": [{"nodeLabel": "y"}]},
        "spec.levels",
        "field is immutable",
    ),
    (
        "resourceflavors",
        {"nodeLabels": {"a": "b"}, "topologyName": "t"},
        {"topologyName": "u"},
        "spec",
        "topologyName is immutable when topologyName is set",
    ),
    (
        "resourceflavors",
        {"nodeLabels": {"a": "b"}, "topologyName": "t"},
        {"nodeLabels": {"a": "c"}},
        "spec",
        "nodeLabels are immutable when topologyName is set",
    ),
]


@pytest.mark.parametrize(
    ("plural", "spec", "change", "field", "text"),
    IMMUTABLE,
    ids=[f"{c[0]}-{c[3]}-{n}" for n, c in enumerate(IMMUTABLE)],
)
async def test_what_cannot_change_is_refused(server, namespace, create, plural, spec, change, field, text):
    """Rules about the previous value are in the definitions, too."""
    made = (await create(plural, spec)).json
    name = made["metadata"]["name"]
    path = kueue(plural, name, namespace=namespace if plural in NAMESPACED else "")
    answer = await server.call("PATCH", path, {"spec": change}, content_type=MERGE_PATCH)
    details = {"name": name, "group": "kueue.x-k8s.io", "kind": KINDS[plural]}
    cause = ("Invalid", field, f"Invalid value: {text}")
    assert told(answer.json) == invalid(f'{KINDS[plural]}.kueue.x-k8s.io "{name}"', details, cause)
    assert (await server.call("PATCH", path, {"spec": spec}, content_type=MERGE_PATCH)).json == made


@pytest.fixture
async def reserved(server, namespace):
    """The path of a Workload whose quota is reserved."""
    path = kueue("workloads", namespace=namespace)
    await server.call("POST", path, workload("w"))
    admission = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 2}]}
    body = {"status": {"conditions": [condition("QuotaReserved")], "admission": admission}}
    answer = await server.call("PATCH", f"{path}/w/status", body, content_type=MERGE_PATCH)
    assert answer.status == 200, answer.json
    return f"{path}/w"


RESERVED = [
    ({"queueName": "other"}, "queueName is immutable while workload quota reserved"),
    (
        {"priority": 1, "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "c"}},
        "priorityClassRef is immutable while workload quota reserved",
    ),
]


@pytest.mark.parametrize(("change", "text"), RESERVED, ids=["queue", "priority class"])
async def test_a_reserved_workload_is_fixed(server, reserved, change, text):
    """Its queue and its priority class; rules of the whole object have no field."""
    answer = await server.call("PATCH", reserved, {"spec": change}, content_type=MERGE_PATCH)
    details = {"name": "w", "group": "kueue.x-k8s.io", "kind": "Workload"}
    cause = ("Invalid", "<nil>", f"Invalid value: {text}")
    assert told(answer.json) == invalid('Workload.kueue.x-k8s.io "w"', details, cause)


async def test_a_reserved_workload_may_change_its_priority(server, reserved):
    """And be deactivated."""
    answer = await server.call("PATCH", reserved, {"spec": {"priority": 7, "active": False}}, content_type=MERGE_PATCH)
    assert answer.status == 200


async def test_an_admission_has_every_pod_set(server, reserved):
    """While the quota is reserved."""
    admission = {"clusterQueue": "cq", "podSetAssignments": [{"name": "main"}, {"name": "more"}]}
    answer = await server.call(
        "PATCH", f"{reserved}/status", {"status": {"admission": admission}}, content_type=MERGE_PATCH
    )
    details = {"name": "w", "group": "kueue.x-k8s.io", "kind": "Workload"}
    text = "Invalid value: podSetAssignments must have the same number of podSets as the spec"
    assert told(answer.json) == invalid('Workload.kueue.x-k8s.io "w"', details, ("Invalid", "<nil>", text))


async def test_a_status_is_checked_below_its_name(server, reserved):
    """Texts of the status endpoint begin there; the fields of the causes do not."""
    broken = {**condition("X", "Maybe"), "reason": "", "lastTransitionTime": "yesterday"}
    body = {"status": {"conditions": [broken], "requeueState": {"count": -1}}}
    answer = await server.call("PATCH", f"{reserved}/status", body, content_type=MERGE_PATCH)
    at = "conditions[0]"
    assert told(answer.json) == invalid(
        'Workload.kueue.x-k8s.io "w"',
        {"name": "w", "group": "kueue.x-k8s.io", "kind": "Workload"},
        (
            "NotSupported",
            f"status.{at}.status",
            'Unsupported value: "Maybe": supported values: "True", "False", "Unknown"',
        ),
        ("Invalid", f"status.{at}.reason", f'Invalid value: "": {at}.reason in body should be at least 1 chars long'),
        (
            "TypeInvalid",
            f"status.{at}.lastTransitionTime",
            f'Invalid value: "yesterday": {at}.lastTransitionTime in body must be of type date-time: "yesterday"',
        ),
        (
            "Invalid",
            "status.requeueState.count",
            "Invalid value: -1: requeueState.count in body should be greater than or equal to 0",
        ),
        UNCHECKED,
    )


async def test_a_subresource_that_a_kind_does_not_have_is_not_found(server, create):
    """As if the object were not there."""
    name = (await create("workloadpriorityclasses", {"value": 1})).json["metadata"]["name"]
    answer = await server.call("GET", kueue("workloadpriorityclasses", name, "status"))
    details = {"name": name, "group": "kueue.x-k8s.io", "kind": "workloadpriorityclasses"}
    message = f'workloadpriorityclasses.kueue.x-k8s.io "{name}" not found'
    assert answer.json == status(404, "NotFound", message, details)


async def test_a_former_version_is_served_with_a_warning(server, namespace):
    """The same object in the version of the path."""
    await server.call("POST", kueue("workloads", namespace=namespace), workload("w"))
    answer = await server.call("GET", kueue("workloads", "w", namespace=namespace).replace("v1beta2", "v1beta1"))
    assert answer.json["apiVersion"] == "kueue.x-k8s.io/v1beta1"
    assert answer.json["spec"] == workload("w")["spec"] | {"active": True}
    assert answer.headers["warning"] == '299 - "This version is deprecated. Use v1beta2 instead."'
