"""
Bodies in Kubernetes' protobuf encoding, as some kubectl commands send them (`kubectl create namespace`, `create job`).

Only reading, only the kinds that such commands send, and only the fields that they set: a message with a field that is
not in the table is refused rather than read without it. The numbers are those of k8s.io/api's `generated.proto`.
A request body is a magic of four bytes and a `runtime.Unknown` that names the type and holds the message.
"""

from collections.abc import Iterator
from typing import Any, Final

from headgate.testing.cluster.times import rfc3339, rfc3339_micro

JsonObject = dict[str, Any]

MAGIC: Final = b"k8s\0"

# Per message: number, name, type. s: text; i: number and b: flag whose zero means absent; I and B: those whose zero is
# said; t and u: time with seconds and microseconds; q: quantity; n: number or text; * in front: list; % in front: map.
_TABLE: Final = """
ObjectMeta: 1 name s, 2 generateName s, 3 namespace s, 5 uid s, 6 resourceVersion s, 7 generation i,
 8 creationTimestamp t, 9 deletionTimestamp t, 10 deletionGracePeriodSeconds I, 11 labels %s, 12 annotations %s,
 13 ownerReferences *OwnerReference, 14 finalizers *s
OwnerReference: 1 kind s, 3 name s, 4 uid s, 5 apiVersion s, 6 controller B, 7 blockOwnerDeletion B
Namespace: 1 metadata ObjectMeta, 2 spec NamespaceSpec, 3 status NamespaceStatus
NamespaceSpec: 1 finalizers *s
NamespaceStatus: 1 phase s
ConfigMap: 1 metadata ObjectMeta, 2 data %s, 4 immutable B
PriorityClass: 1 metadata ObjectMeta, 2 value I, 3 globalDefault b, 4 description s, 5 preemptionPolicy s
Job: 1 metadata ObjectMeta, 2 spec JobSpec, 3 status JobStatus
JobSpec: 1 parallelism I, 2 completions I, 3 activeDeadlineSeconds I, 4 selector LabelSelector, 5 manualSelector B,
 6 template PodTemplateSpec, 7 backoffLimit I, 8 ttlSecondsAfterFinished I, 9 completionMode s, 10 suspend B,
 12 backoffLimitPerIndex I, 13 maxFailedIndexes I, 14 podReplacementPolicy s, 15 managedBy s
JobStatus: 4 active i, 5 succeeded i, 6 failed i
LabelSelector: 1 matchLabels %s, 2 matchExpressions *LabelSelectorRequirement
LabelSelectorRequirement: 1 key s, 2 operator s, 3 values *s
PodTemplateSpec: 1 metadata ObjectMeta, 2 spec PodSpec
Pod: 1 metadata ObjectMeta, 2 spec PodSpec, 3 status PodStatus
PodStatus: 1 phase s
PodSpec: 2 containers *Container, 3 restartPolicy s, 4 terminationGracePeriodSeconds I, 5 activeDeadlineSeconds I,
 6 dnsPolicy s, 7 nodeSelector %s, 8 serviceAccountName s, 9 serviceAccount s, 10 nodeName s, 11 hostNetwork b,
 12 hostPID b, 13 hostIPC b, 14 securityContext Empty, 16 hostname s, 17 subdomain s, 19 schedulerName s,
 20 initContainers *Container, 21 automountServiceAccountToken B, 22 tolerations *Toleration, 24 priorityClassName s,
 25 priority I, 29 runtimeClassName s, 30 enableServiceLinks B, 31 preemptionPolicy s, 32 overhead %q,
 38 schedulingGates *SchedulingGate
Empty:
SchedulingGate: 1 name s
Toleration: 1 key s, 2 operator s, 3 value s, 4 effect s, 5 tolerationSeconds I
Container: 1 name s, 2 image s, 3 command *s, 4 args *s, 5 workingDir s, 6 ports *ContainerPort, 7 env *EnvVar,
 8 resources ResourceRequirements, 13 terminationMessagePath s, 14 imagePullPolicy s, 16 stdin b, 17 stdinOnce b,
 18 tty b, 20 terminationMessagePolicy s, 24 restartPolicy s
ContainerPort: 1 name s, 2 hostPort i, 3 containerPort I, 4 protocol s, 5 hostIP s
EnvVar: 1 name s, 2 value s
ResourceRequirements: 1 limits %q, 2 requests %q
PodDisruptionBudget: 1 metadata ObjectMeta, 2 spec PodDisruptionBudgetSpec, 3 status PodDisruptionBudgetStatus
PodDisruptionBudgetSpec: 1 minAvailable n, 2 selector LabelSelector, 3 maxUnavailable n, 4 unhealthyPodEvictionPolicy s
PodDisruptionBudgetStatus: 1 observedGeneration i, 3 disruptionsAllowed i, 4 currentHealthy i, 5 desiredHealthy i,
 6 expectedPods i
Eviction: 1 metadata ObjectMeta, 2 deleteOptions DeleteOptions
DeleteOptions: 1 gracePeriodSeconds I, 2 preconditions Preconditions, 3 orphanDependents B, 4 propagationPolicy s,
 5 dryRun *s
Preconditions: 1 uid s, 2 resourceVersion s
Binding: 1 metadata ObjectMeta, 2 target ObjectReference
ObjectReference: 1 kind s, 2 namespace s, 3 name s, 4 uid s, 5 apiVersion s, 6 resourceVersion s, 7 fieldPath s
Lease: 1 metadata ObjectMeta, 2 spec LeaseSpec
LeaseSpec: 1 holderIdentity s, 2 leaseDurationSeconds I, 3 acquireTime u, 4 renewTime u, 5 leaseTransitions I,
 6 strategy s, 7 preferredHolder s
SelfSubjectAccessReview: 1 metadata ObjectMeta, 2 spec AccessReviewSpec, 3 status Status
AccessReviewSpec: 1 resourceAttributes ResourceAttributes, 2 nonResourceAttributes NonResourceAttributes
ResourceAttributes: 1 namespace s, 2 verb s, 3 group s, 4 version s, 5 resource s, 6 subresource s, 7 name s
NonResourceAttributes: 1 path s, 2 verb s
SelfSubjectRulesReview: 1 metadata ObjectMeta, 2 spec RulesReviewSpec, 3 status Status
RulesReviewSpec: 1 namespace s
SelfSubjectReview: 1 metadata ObjectMeta, 2 status UserStatus
UserStatus: 1 userInfo UserInfo
UserInfo: 1 username s
Status: 1 allowed b, 2 reason s, 3 incomplete b, 4 denied b
"""


def _messages() -> dict[str, dict[int, tuple[str, str]]]:
    messages: dict[str, dict[int, tuple[str, str]]] = {}
    for entry in _TABLE.replace("\n ", " ").strip().splitlines():
        name, _, fields = entry.partition(":")
        parts = [field.split() for field in fields.split(",") if field.strip()]
        messages[name] = {int(number): (field, kind) for number, field, kind in parts}
    return messages


_MESSAGES: Final = _messages()


def decode(body: bytes) -> JsonObject:
    """
    The object in a protobuf request body, with `apiVersion` and `kind`.

    Raises ValueError on what is not such a body, or has a kind or a field that the table lacks.
    """
    if not body.startswith(MAGIC):
        raise ValueError("the body does not start with the protobuf magic of Kubernetes")
    envelope = dict(_fields(body[len(MAGIC) :]))
    type_meta = dict(_fields(_bytes(envelope.get(1, b""))))
    api_version, kind = _bytes(type_meta.get(1, b"")).decode(), _bytes(type_meta.get(2, b"")).decode()
    if kind not in _MESSAGES:
        raise ValueError(f"protobuf bodies of kind {kind!r} are not read; send JSON")
    return {"apiVersion": api_version, "kind": kind, **_message(kind, _bytes(envelope.get(2, b"")))}


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a protobuf number stands where a message or text belongs")  # noqa: TRY004 - the data is wrong
    return value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("the protobuf body ends within a number")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        shift += 7
        if byte < 0x80:
            return value, at


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
            yield number, value - (1 << 64) if value >> 63 else value
        elif wire == 2:
            length, at = _varint(data, at)
            if at + length > len(data):
                raise ValueError("the protobuf body ends within a field")
            yield number, data[at : at + length]
            at += length
        else:
            raise ValueError(f"protobuf wire type {wire} is not used by Kubernetes' kinds")


def _message(name: str, data: bytes) -> JsonObject:
    found: JsonObject = {}
    for number, raw in _fields(data):
        if number not in _MESSAGES[name]:
            if not raw:
                continue
            raise ValueError(f"field {number} of a protobuf {name} is not read; send JSON")
        field, kind = _MESSAGES[name][number]
        if kind.startswith("*"):
            found.setdefault(field, []).append(_value(kind[1:], raw))
        elif kind.startswith("%"):
            pair = dict(_fields(_bytes(raw)))
            found.setdefault(field, {})[_bytes(pair.get(1, b"")).decode()] = _value(kind[1:], pair.get(2, b""))
        else:
            value = _value(kind, raw)
            # Go writes every field that is not a pointer; its zero is what JSON leaves out.
            if value or kind in {"I", "B", "n"} or isinstance(value, dict):
                found[field] = value
    return found


def _value(kind: str, raw: int | bytes) -> Any:
    match kind:
        case "i" | "I":
            return raw
        case "b" | "B":
            return bool(raw)
        case "s":
            return _bytes(raw).decode()
        case "q":
            return _bytes(dict(_fields(_bytes(raw))).get(1, b"")).decode()
        case "n":
            parts = dict(_fields(_bytes(raw)))
            return _bytes(parts.get(3, b"")).decode() if parts.get(1, 0) else parts.get(2, 0)
        case "t" | "u":
            parts = dict(_fields(_bytes(raw)))
            seconds, nanos = parts.get(1, 0), parts.get(2, 0)
            if not parts or not isinstance(seconds, int) or not isinstance(nanos, int):
                return None
            return rfc3339(1000 * seconds) if kind == "t" else rfc3339_micro(1000 * seconds + nanos // 1_000_000)
        case message:
            return _message(message, _bytes(raw))
