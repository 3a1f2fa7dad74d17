"""
How kwok plays the kubelets: its Stage objects.

Pods behave as `testing.pod_scripts` defines, as with the simulated cluster's kubelet, so the same manifests run on
both; that a failed container is started again where the restart policy says so is part of it. A node becomes Ready, and
has another Ready status for as long as its annotation `READY_ANNOTATION` is set: taints and evictions are then the real
node controllers' work, and its pods continue, as on a node that is only cut off.

A pod's time is counted from its status, which is cut to seconds: of a pod that is written while it runs, and of all
when kwok starts again, what remains is right to the second. kwok refuses no pod, as a kubelet would for want of room or
for a taint: the scheduler that binds it must check that it fits.
"""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from headgate.testing.control_plane.assets import KUBERNETES_VERSION
from headgate.testing.pod_scripts import (
    EXIT_ANNOTATION,
    RESTART_BACKOFF_MS,
    RESTART_BACKOFF_MS_MAX,
    RUN_ANNOTATION,
    RUN_MS,
    START_ANNOTATION,
    STOP_ANNOTATION,
)

READY_ANNOTATION: Final = "headgate.dev/ready"
"""On a node: `False` or `Unknown`, the status of its Ready condition until the annotation goes."""

_JsonObject = dict[str, Any]


_CONFIGURATION: Final[_JsonObject] = {
    "apiVersion": "config.kwok.x-k8s.io/v1alpha1",
    "kind": "KwokConfiguration",
    "options": {
        # Its default of four writes at a time is less than the kubelets of a few nodes make.
        "podPlayStageParallelism": 32,
        # These are its defaults: a file with options has none but its own.
        "cidr": "10.0.0.0/24",
        "nodePlayStageParallelism": 4,
        "nodeLeaseParallelism": 4,
        "podsOnNodeSyncParallelism": 1,
        "enablePodsOnNodeSyncListPager": True,
    },
}


def stages() -> bytes:
    """The configuration file of kwok: its options and a stream of Stage objects, as JSON (which is YAML)."""
    return b"\n---\n".join(msgspec.json.encode(each) for each in (_CONFIGURATION, *_node_stages(), *_pod_stages()))


# --- what they are made of ------------------------------------------------------------------------------------------


def _stage(
    name: str, kind: str, when: Sequence[_JsonObject], steps: Sequence[_JsonObject], delay: str = ""
) -> _JsonObject:
    spec: _JsonObject = {
        "resourceRef": {"apiGroup": "v1", "kind": kind},
        "selector": {"matchExpressions": [{"jq": each} for each in when]},
        "steps": list(steps),
    }
    if delay:
        spec["delay"] = {"durationMilliseconds": 0, "durationFrom": {"jq": {"expression": delay}}}
    return {"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage", "metadata": {"name": name}, "spec": spec}


def _is_in(key: str, *values: str) -> _JsonObject:
    return {"key": key, "operator": "In", "values": list(values)}


def _is_not_in(key: str, *values: str) -> _JsonObject:
    return {"key": key, "operator": "NotIn", "values": list(values)}


def _holds(key: str) -> _JsonObject:
    return _is_in(key, "true")


def _status(template: str) -> _JsonObject:
    return {"patch": {"subresource": "status", "root": "status", "template": template}}


def _annotated(annotation: str, default: int) -> str:
    """Of an annotation, in jq: its number, or the default where it is missing or none."""
    return f'((.metadata.annotations["{annotation}"] | tonumber? // null) // {default})'


# --- nodes ----------------------------------------------------------------------------------------------------------

_SAYS_READY: Final = f'.metadata.annotations["{READY_ANNOTATION}"]'

_NODE_READY: Final = """
{{ $capacity := or .status.capacity dict }}
{{ $allocatable := or .status.allocatable .status.capacity dict }}
conditions:
- type: Ready
  status: "True"
  reason: KubeletReady
  message: kubelet is posting ready status
  lastHeartbeatTime: {{ Now | Quote }}
  lastTransitionTime: {{ Now | Quote }}
capacity:
  cpu: {{ or (get $capacity "cpu") "4" | Quote }}
  memory: {{ or (get $capacity "memory") "16Gi" | Quote }}
  pods: {{ or (get $capacity "pods") "110" | Quote }}
allocatable:
  cpu: {{ or (get $allocatable "cpu") "4" | Quote }}
  memory: {{ or (get $allocatable "memory") "16Gi" | Quote }}
  pods: {{ or (get $allocatable "pods") "110" | Quote }}
nodeInfo: {kubeletVersion: VERSION, operatingSystem: linux, architecture: amd64}
""".replace("VERSION", KUBERNETES_VERSION)

_NODE_LABELS: Final = """
{{ $labels := or .metadata.labels dict }}
labels:
  kubernetes.io/hostname: {{ or (get $labels "kubernetes.io/hostname") .metadata.name | Quote }}
  kubernetes.io/os: {{ or (get $labels "kubernetes.io/os") "linux" | Quote }}
  kubernetes.io/arch: {{ or (get $labels "kubernetes.io/arch") "amd64" | Quote }}
"""

_NODE_NOT_READY: Final = """
{{ $status := get .metadata.annotations "ANNOTATION" }}
conditions:
- type: Ready
  status: {{ $status | Quote }}
  reason: {{ if eq $status "Unknown" }}NodeStatusUnknown{{ else }}KubeletNotReady{{ end }}
  message: {{ if eq $status "Unknown" }}Kubelet stopped posting node status.{{ else }}container runtime is down{{ end }}
  lastTransitionTime: {{ Now | Quote }}
""".replace("ANNOTATION", READY_ANNOTATION)


def _node_stages() -> list[_JsonObject]:
    ready = '.status.conditions[] | select(.type == "Ready") | .status'
    return [
        _stage(
            "node-ready",
            "Node",
            [_is_not_in(_SAYS_READY, "False", "Unknown"), _is_not_in(ready, "True")],
            [_status(_NODE_READY), {"patch": {"root": "metadata", "template": _NODE_LABELS}}],
        ),
        _stage(
            "node-not-ready",
            "Node",
            [_is_in(_SAYS_READY, "False", "Unknown"), _is_not_in(f"{_SAYS_READY} as $said | {ready} == $said", "true")],
            [_status(_NODE_NOT_READY)],
        ),
    ]


# --- pods -----------------------------------------------------------------------------------------------------------

_POD_START: Final = """
{{ $now := Now }}
{{ $statuses := .status.containerStatuses }}
phase: Running
startTime: {{ or .status.startTime $now | Quote }}
hostIP: 10.0.0.1
podIP: 10.1.0.1
conditions:
- {type: Initialized, status: "True", lastTransitionTime: {{ $now | Quote }}}
- {type: Ready, status: "True", reason: "", lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "True", reason: "", lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range $index, $container := .spec.containers }}
- name: {{ .name | Quote }}
  image: {{ or .image "" | Quote }}
  imageID: ""
  ready: true
  started: true
  restartCount: {{ if $statuses }}{{ (index $statuses $index).restartCount }}{{ else }}0{{ end }}
  state: {waiting: null, running: {startedAt: {{ $now | Quote }}}}
{{ end }}
"""

_POD_END: Final = """
{{ $now := Now }}
{{ $statuses := .status.containerStatuses }}
PHASE
conditions:
- {type: Ready, status: "False", reason: REASON, lastTransitionTime: {{ $now | Quote }}}
- {type: ContainersReady, status: "False", reason: REASON, lastTransitionTime: {{ $now | Quote }}}
containerStatuses:
{{ range $index, $container := .spec.containers }}
{{ $restarts := 0 }}
{{ $began := $now }}
{{ if $statuses }}
{{ $was := index $statuses $index }}
{{ $restarts = $was.restartCount }}
{{ if $was.state.running }}{{ $began = $was.state.running.startedAt }}{{ end }}
{{ end }}
- name: {{ .name | Quote }}
  image: {{ or .image "" | Quote }}
  imageID: ""
  ready: false
  started: false
  restartCount: {{ add $restarts MORE }}
  state: STATE
{{ end }}
"""

_TERMINATED: Final = (
    "{running: null, waiting: null, terminated: {exitCode: CODE, reason: WORD, "
    "startedAt: {{ $began | Quote }}, finishedAt: {{ $now | Quote }}}}"
)


def _ending(phase: str, reason: str, state: str, *, restarts: int = 0) -> _JsonObject:
    """The step that writes how a pod's containers have ended."""
    template = _POD_END.replace("PHASE", f"phase: {phase}" if phase else "").replace("REASON", reason)
    return _status(template.replace("MORE", str(restarts)).replace("STATE", state))


def _terminated(code: str, word: str) -> str:
    return _TERMINATED.replace("CODE", code).replace("WORD", word)


_ALIVE: Final = {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"}
_DYING: Final = {"key": ".metadata.deletionTimestamp", "operator": "Exists"}
_FAILING: Final = f"{_annotated(EXIT_ANNOTATION, 0)} != 0"
_RUNS: Final = ".status.containerStatuses[0].state.running != null"

_REMAINING: Final = f"""
{_annotated(RUN_ANNOTATION, RUN_MS)} as $run
| (.status.containerStatuses[0].state.running.startedAt | fromdateiso8601) as $began
| ((now - $began) * 1000) as $past
| (if $past < 1500 then $run else ([$run - $past, 0] | max) end) | floor | tostring + "ms"
"""
"""How long a running pod still runs, in jq. One that has begun within the second has all of it before it."""

_BACKOFF: Final = f"""
((.status.containerStatuses[0].restartCount // 1) - 1) as $before
| [{RESTART_BACKOFF_MS} * pow(2; [$before, 0] | max), {RESTART_BACKOFF_MS_MAX}] | min | floor | tostring + "ms"
"""

_DYING_TIME: Final = f"""
[{_annotated(STOP_ANNOTATION, 0)}, 1000 * (.metadata.deletionGracePeriodSeconds // 0)] | min | floor | tostring + "ms"
"""


# Large: a table of the stages of a pod's life.
def _pod_stages() -> list[_JsonObject]:
    running = [_ALIVE, _is_in(".status.phase", "Running"), _holds(_RUNS)]
    ends = f'.spec.restartPolicy == "Never" or (.spec.restartPolicy == "OnFailure" and ({_FAILING} | not))'
    # Restart policy Always: its containers end only if they say when.
    returns = (
        f'(.spec.restartPolicy == "Always" and .metadata.annotations["{RUN_ANNOTATION}"] != null) '
        f'or (.spec.restartPolicy == "OnFailure" and {_FAILING})'
    )
    code = f'{{{{ get $.metadata.annotations "{EXIT_ANNOTATION}" }}}}'
    return [
        _stage(
            "pod-start",
            "Pod",
            [_ALIVE, _is_in(".status.phase", "Pending")],
            [_status(_POD_START)],
            f'{_annotated(START_ANNOTATION, 0)} | tostring + "ms"',
        ),
        _stage(
            "pod-succeed",
            "Pod",
            [*running, _holds(ends), _holds(f"{_FAILING} | not")],
            [_ending("Succeeded", "PodCompleted", _terminated("0", "Completed"))],
            _REMAINING,
        ),
        _stage(
            "pod-fail",
            "Pod",
            [*running, _holds(ends), _holds(_FAILING)],
            [_ending("Failed", "ContainersNotReady", _terminated(code, "Error"))],
            _REMAINING,
        ),
        _stage(
            "pod-crash",
            "Pod",
            [*running, _holds(returns)],
            [_ending("", "ContainersNotReady", "{running: null, waiting: {reason: CrashLoopBackOff}}", restarts=1)],
            _REMAINING,
        ),
        _stage(
            "pod-start-again",
            "Pod",
            [_ALIVE, _is_in(".status.phase", "Running"), _holds(".status.containerStatuses[0].state.waiting != null")],
            [_status(_POD_START)],
            _BACKOFF,
        ),
        _stage(
            "pod-kill",
            "Pod",
            [_DYING, _is_not_in(".status.phase", "Succeeded", "Failed")],
            # Killed containers exit with 143, which fails the pod under every restart policy.
            [_ending("Failed", "ContainersNotReady", _terminated("143", "Error"))],
            _DYING_TIME,
        ),
        _stage("pod-gone", "Pod", [_DYING, _is_in(".status.phase", "Succeeded", "Failed")], [{"delete": True}]),
    ]
