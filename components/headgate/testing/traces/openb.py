"""
The openb trace format: a GPU cluster's nodes and tasks as CSV, made into Kubernetes and Kueue objects.

Format and data: Alibaba's cluster-trace-gpu-v2023 (`openb_node_list_all_node.csv`, `openb_pod_list_*.csv`); Weng et
al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX ATC 2023.

What becomes of it:

- a node: a Node with cpu, memory, pods and, for its GPUs, `alibabacloud.com/gpu-milli` (1000 a GPU: tasks share GPUs),
  labelled with its model;
- a GPU model, and nodes without GPU: a ResourceFlavor, selected by that label;
- a QoS class: a Namespace, a ClusterQueue and a LocalQueue; all share one Cohort. Each queue's nominal quota is its
  share of the requested work (request times time), so that together they have the whole cluster; what one leaves idle
  the others borrow;
- a task: a suspended Job of one pod, created at its `creation_time`, that runs for the time between start (if it never
  started: creation) and deletion in the trace. `gpu_spec`, and which models have a node that is large enough at all,
  become a required node affinity: quota does not depend on nodes. A task that Failed in the trace fails here.
"""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

GPU = "alibabacloud.com/gpu-milli"
MODEL = "alibabacloud.com/gpu-card-model"
NO_GPU = "none"
COHORT = "openb"
QUEUE = "tasks"
PODS_PER_NODE_MAX = 250

Manifest = dict[str, Any]
T = TypeVar("T", bound=msgspec.Struct)


class TraceError(ValueError):
    """Raised when a trace file cannot be read: names the file, the line, the column and what is expected there."""


class TraceNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node. Memory in MiB, CPU in milli-units, `model` "" without GPU."""

    sn: str
    cpu_milli: int
    memory_mib: int
    gpu: int
    model: str


class TraceTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task. Times in seconds from the start of the trace; `scheduled_time` None when it never started."""

    name: str
    cpu_milli: int
    memory_mib: int
    num_gpu: int
    gpu_milli: int
    gpu_spec: str
    qos: str
    pod_phase: str
    creation_time: int
    deletion_time: int
    scheduled_time: int | None

    @property
    def run_s(self) -> int:
        """How long it ran, in seconds."""
        start = self.creation_time if self.scheduled_time is None else self.scheduled_time
        return max(0, self.deletion_time - start)

    @property
    def queue(self) -> str:
        """The name of its queue: its QoS class as a DNS label."""
        return self.qos.lower()


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """Nodes, and tasks in order of creation."""

    nodes: tuple[TraceNode, ...]
    tasks: tuple[TraceTask, ...]


def read_trace(nodes: Path, pods: Path) -> Trace:
    """Read both files. Raises TraceError."""
    tasks = _rows(pods, TraceTask)
    names = set[str]()
    for task in tasks:
        if task.name in names:
            raise TraceError(f"{pods}: task {task.name} appears twice: give each task a name of its own")
        names.add(task.name)
    ordered = sorted(tasks, key=lambda task: (task.creation_time, task.name))
    return Trace(nodes=tuple(_rows(nodes, TraceNode)), tasks=tuple(ordered))


def _rows(path: Path, struct: type[T]) -> list[T]:
    try:
        with path.open(newline="") as file:
            return list(_parse(path, csv.DictReader(file), struct))
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(f"cannot read {path}: {error}") from error


def _parse(path: Path, reader: "csv.DictReader[str]", struct: type[T]) -> Iterator[T]:
    fields = {field.name: field.type for field in msgspec.structs.fields(struct)}
    missing = [name for name in fields if name not in (reader.fieldnames or ())]
    if missing:
        raise TraceError(f"{path}: the header lacks {', '.join(missing)}: expected {','.join(fields)}")
    for row in reader:
        values = {name: _value(path, reader.line_num, name, row[name], kind) for name, kind in fields.items()}
        yield struct(**values)


def _value(path: Path, line: int, name: str, text: str | None, kind: object) -> object:
    if text is None:
        raise TraceError(f"{path}:{line}: {name} is missing: the line has too few columns")
    if kind is str:
        return text
    if text == "" and kind is not int:
        return None
    try:
        number = int(text)
    except ValueError as error:
        raise TraceError(f"{path}:{line}: {name} is {text!r}: expected a whole number") from error
    if number < 0:
        raise TraceError(f"{path}:{line}: {name} is {number}: expected a number from 0 on")
    return number


# --- objects -------------------------------------------------------------------------------------------------------


def cluster_objects(trace: Trace) -> list[Manifest]:
    """Nodes, flavors, the cohort and the queues, in an order in which they can be applied."""
    models = sorted({node.model or NO_GPU for node in trace.nodes})
    queues = sorted({task.queue for task in trace.tasks})
    objects = [_flavor(model) for model in models]
    objects += [_kueue("Cohort", COHORT, {})]
    capacity = _capacity(trace, models)
    shares = _shares(trace, queues)
    for queue in queues:
        objects.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": queue}})
        objects.append(_cluster_queue(queue, models, capacity, shares, last=queue == queues[-1], queues=queues))
        local = _kueue("LocalQueue", QUEUE, {"clusterQueue": queue})
        local["metadata"]["namespace"] = queue
        objects.append(local)
    objects += [_node(node) for node in trace.nodes]
    return objects


def _kueue(kind: str, name: str, spec: Mapping[str, Any]) -> Manifest:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}, "spec": dict(spec)}


def flavor_name(model: str) -> str:
    """The ResourceFlavor of a GPU model."""
    return model.lower()


def _flavor(model: str) -> Manifest:
    return _kueue("ResourceFlavor", flavor_name(model), {"nodeLabels": {MODEL: model}})


def _node(node: TraceNode) -> Manifest:
    resources = {
        "cpu": f"{node.cpu_milli}m",
        "memory": f"{node.memory_mib}Mi",
        "pods": str(PODS_PER_NODE_MAX),
        **({GPU: str(node.gpu * 1000)} if node.gpu else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.sn, "labels": {MODEL: node.model or NO_GPU, "kubernetes.io/hostname": node.sn}},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def _capacity(trace: Trace, models: list[str]) -> dict[tuple[str, str], int]:
    """Per (model, resource): milli-CPU, MiB, milli-GPU."""
    capacity = {(model, resource): 0 for model in models for resource in ("cpu", "memory", GPU)}
    for node in trace.nodes:
        model = node.model or NO_GPU
        capacity[model, "cpu"] += node.cpu_milli
        capacity[model, "memory"] += node.memory_mib
        capacity[model, GPU] += node.gpu * 1000
    return capacity


def _shares(trace: Trace, queues: list[str]) -> dict[tuple[str, str], tuple[int, int]]:
    """Per (queue, resource): its part of the requested work, as a fraction (numerator, denominator)."""
    work = {(queue, resource): 0 for queue in queues for resource in ("cpu", "memory", GPU)}
    for task in trace.tasks:
        seconds = max(1, task.run_s)
        work[task.queue, "cpu"] += task.cpu_milli * seconds
        work[task.queue, "memory"] += task.memory_mib * seconds
        work[task.queue, GPU] += task.num_gpu * task.gpu_milli * seconds
    totals = {resource: sum(work[queue, resource] for queue in queues) for resource in ("cpu", "memory", GPU)}
    return {key: (value, max(1, totals[key[1]])) for key, value in work.items()}


def _cluster_queue(
    queue: str,
    models: list[str],
    capacity: Mapping[tuple[str, str], int],
    shares: Mapping[tuple[str, str], tuple[int, int]],
    *,
    last: bool,
    queues: list[str],
) -> Manifest:
    def nominal(model: str, resource: str, name: str) -> int:
        part, whole = shares[name, resource]
        return capacity[model, resource] * part // whole

    def quota(model: str, resource: str) -> str:
        mine = nominal(model, resource, queue)
        if last:  # what rounding down left over, so that nothing of the cluster is lost
            mine = capacity[model, resource] - sum(nominal(model, resource, name) for name in queues[:-1])
        return f"{mine}m" if resource == "cpu" else f"{mine}Mi" if resource == "memory" else str(mine)

    flavors = [
        {
            "name": flavor_name(model),
            "resources": [
                {"name": resource, "nominalQuota": quota(model, resource)} for resource in ("cpu", "memory", GPU)
            ],
        }
        for model in _search_order(models)
    ]
    spec = {
        "cohortName": COHORT,
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": queue}},
        "queueingStrategy": "BestEffortFIFO",
        "resourceGroups": [{"coveredResources": ["cpu", "memory", GPU], "flavors": flavors}],
    }
    return _kueue("ClusterQueue", queue, spec)


def _search_order(models: list[str]) -> list[str]:
    """Nodes without GPU first, so that tasks without GPU do not take the room beside one."""
    return sorted(models, key=lambda model: (model != NO_GPU, model))


class Sizes:
    """Which models have a node that can hold a task."""

    def __init__(self, nodes: tuple[TraceNode, ...]) -> None:
        shapes = {(node.model or NO_GPU, node.cpu_milli, node.memory_mib, node.gpu * 1000) for node in nodes}
        self._shapes = sorted(shapes)
        self.models = sorted({model for model, *_ in shapes})

    def models_for(self, task: TraceTask) -> list[str]:
        """The models that a task may run on: those it names (any, if it names none) with a node of its size."""
        named = task.gpu_spec.split("|") if task.gpu_spec else self.models
        gpu_milli = task.num_gpu * task.gpu_milli
        fitting = {
            model
            for model, cpu_milli, memory_mib, gpus_milli in self._shapes
            if cpu_milli >= task.cpu_milli and memory_mib >= task.memory_mib and gpus_milli >= gpu_milli
        }
        return [model for model in named if model in fitting] or named


def job_of(task: TraceTask, sizes: Sizes) -> Manifest:
    """The suspended Job of a task."""
    requests = {"cpu": f"{task.cpu_milli}m", "memory": f"{task.memory_mib}Mi"}
    if task.num_gpu:
        requests[GPU] = str(task.num_gpu * task.gpu_milli)
    annotations = {"headgate.dev/run-ms": str(task.run_s * 1000)}
    if task.pod_phase == "Failed":
        annotations["headgate.dev/exit-code"] = "1"
    spec: Manifest = {
        "restartPolicy": "Never",
        "containers": [
            {"name": "task", "image": "trace", "resources": {"requests": requests, "limits": dict(requests)}}
        ],
    }
    models = sizes.models_for(task)
    if models != sizes.models:
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _one_of(MODEL, models)}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": task.name,
            "namespace": task.queue,
            "labels": {"kueue.x-k8s.io/queue-name": QUEUE},
        },
        "spec": {
            "suspend": True,
            "parallelism": 1,
            "completions": 1,
            "backoffLimit": 0,
            "template": {"metadata": {"annotations": annotations}, "spec": spec},
        },
    }


def _one_of(key: str, values: list[str]) -> Manifest:
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]}
