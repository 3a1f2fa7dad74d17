"""What `kubectl get` prints of Kueue's kinds: the columns of Kueue's own CustomResourceDefinitions."""

from typing import Any

import msgspec
import pytest

from headgate.testing.cluster import Cluster
from headgate.testing.cluster.kinds import BY_PLURAL

NOW_MS = 1_700_000_000_000
GROUP = "kueue.x-k8s.io"
ACCEPT = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
AGE = ("Age", "date", ".metadata.creationTimestamp", 0)
COLUMNS = {
    "workloads": [
        ("Queue", "string", ".spec.queueName", 0),
        ("Reserved in", "string", ".status.admission.clusterQueue", 0),
        ("Admitted", "string", ".status.conditions[?(@.type=='Admitted')].status", 0),
        ("Finished", "string", ".status.conditions[?(@.type=='Finished')].status", 0),
        AGE,
    ],
    "clusterqueues": [
        ("Cohort", "string", ".spec.cohortName", 0),
        ("Strategy", "string", ".spec.queueingStrategy", 1),
        ("Pending Workloads", "integer", ".status.pendingWorkloads", 0),
        ("Admitted Workloads", "integer", ".status.admittedWorkloads", 1),
    ],
    "localqueues": [
        ("ClusterQueue", "string", ".spec.clusterQueue", 0),
        ("Pending Workloads", "integer", ".status.pendingWorkloads", 0),
        ("Admitted Workloads", "integer", ".status.admittedWorkloads", 0),
    ],
    "cohorts": [AGE],
    "workloadpriorityclasses": [("Value", "integer", ".value", 0)],
}
"""Name, type, path and priority, from the `kubebuilder:printcolumn` markers of Kueue's API types."""

OBJECTS: list[dict[str, Any]] = [
    {"kind": "Cohort", "metadata": {"name": "research"}},
    {"kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 100},
    {
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": {"cohortName": "research", "namespaceSelector": {}},
        "status": {"pendingWorkloads": 3, "admittedWorkloads": 2},
    },
    {
        "kind": "LocalQueue",
        "metadata": {"name": "main", "namespace": "default"},
        "spec": {"clusterQueue": "cq"},
        "status": {"pendingWorkloads": 1, "admittedWorkloads": 0},
    },
    {
        "kind": "Workload",
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {
            "queueName": "main",
            "podSets": [
                {"name": "main", "count": 1, "template": {"spec": {"containers": [{"name": "c", "image": "i"}]}}}
            ],
        },
        "status": {
            "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": "main", "count": 1}]},
            "conditions": [
                {
                    "type": each,
                    "status": "True",
                    "reason": "r",
                    "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }
                for each in ("QuotaReserved", "Admitted")
            ],
        },
    },
]
AGE_COLUMN = {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}
CELLS = {
    "workloads": ["w", "main", "cq", "True", None, "2m5s"],
    "clusterqueues": ["cq", "research", "BestEffortFIFO", 3, 2],
    "localqueues": ["main", "cq", 1, 0],
    "cohorts": ["research", "2m5s"],
    "workloadpriorityclasses": ["high", 100],
}


def listed(plural):
    """The path of all objects of a kind."""
    kind = BY_PLURAL[(GROUP, plural)]
    return f"/apis/{kind.group}/{kind.version}/{plural}"


@pytest.mark.parametrize("plural", COLUMNS)
def test_the_definition_has_the_columns_of_kueue(plural):
    """So that the CRD has Kueue's columns; where it has none, the age is the default."""
    cluster = Cluster(lambda: NOW_MS)
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{plural}.{GROUP}"
    for version in cluster.request("GET", path).json()["spec"]["versions"]:
        columns = version.get("additionalPrinterColumns", [AGE_COLUMN])
        assert [(c["name"], c["type"], c["jsonPath"], c.get("priority", 0)) for c in columns] == COLUMNS[plural]


@pytest.mark.parametrize("plural", COLUMNS)
def test_the_table_has_a_cell_for_each_column(plural):
    """Empty where the object has no value yet; ages in kubectl's format."""
    now_ms = NOW_MS
    cluster = Cluster(lambda: now_ms)
    for each in OBJECTS:
        cluster.create({"apiVersion": f"{GROUP}/v1beta2", **{k: v for k, v in each.items() if k != "status"}})
        if "status" in each:
            kind = f"{each['kind'].lower()}s"
            where = f"namespaces/default/{kind}" if "namespace" in each["metadata"] else kind
            path = f"/apis/{GROUP}/v1beta2/{where}/{each['metadata']['name']}/status"
            body = msgspec.json.encode({"status": each["status"]})
            answer = cluster.request("PATCH", path, {}, body, "application/merge-patch+json")
            assert answer.status == 200, answer.body
    now_ms += 125_000
    table = cluster.request("GET", listed(plural), accept=ACCEPT).json()
    assert [each["name"] for each in table["columnDefinitions"]] == ["Name", *(each[0] for each in COLUMNS[plural])]
    assert [row["cells"] for row in table["rows"]] == [CELLS[plural]]
