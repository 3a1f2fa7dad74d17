"""The page of Kueue's Configuration: what decides, what is accepted without effect, and every feature gate."""

from typing import Any, Final, get_args

import msgspec

from headgate.core.config import feature_gates
from headgate.core.config import reader as reading
from headgate.core.config.frameworks import SUPPORTED
from headgate.core.config.gate_effects import OTHERS, REFUSED
from headgate.events import configuration as contract
from tools.reference.text import code, docstring, page, table

INTRODUCTION: Final = """
What decides who is admitted: Kueue's `Configuration`, `config.kueue.x-k8s.io/v1beta1` or `v1beta2`. `headgate up
--config FILE` takes it; in a cluster `bridge.configuration` names the file. The informer bridge reads it when it
starts and again when it changes, and appends it as [`configuration.observed`](events.md#configuration-observed), so
that every process and every replay decides by the same one. Without a file the log keeps the configuration that it has.
A new log begins with Kueue's defaults. A change that enables other kinds of jobs takes effect when the bridge starts.

A field that neither Kueue nor Headgate has, and a field that asks for what Headgate does not do, is refused with its
name and a remedy. What a change has read otherwise, such as other labels of pods, is listed again at once.

```yaml
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
fairSharing:
  preemptionStrategies: [LessThanOrEqualToFinalShare, LessThanInitialShare]
waitForPodsReady:
  timeout: 10m
```
"""
_SECTIONS: Final = (
    contract.FairSharingConfiguration,
    contract.AdmissionFairSharingConfiguration,
    contract.WaitForPodsReady,
    contract.RequeuingStrategy,
    contract.ResourcesConfiguration,
    contract.ResourceTransformation,
    contract.RetentionPolicies,
    contract.MetricsConfiguration,
    contract.CustomMetricLabel,
)


def configuration_page() -> str:
    """`docs/reference/configuration.md`."""
    decides = [
        "## Fields that decide\n\nThe tables show how the log spells each field, and what it means where a log of an "
        "earlier version leaves it out."
    ]
    decides += [f"{docstring(section)}\n\n{_fields(section)}" for section in _SECTIONS]
    policies = ", ".join(map(code, get_args(contract.WakePolicyName)))
    own = (
        f"## Headgate's own section\n\nKueue does not have it: take it out of a file that Kueue is to read.\n\n"
        f"`headgate.wakePolicy`: {policies}. Which pending workloads are tried again when quota comes free, and how "
        "often; see [How pending workloads are retried](../concepts/waking.md). The feature gate "
        f"`{feature_gates.PREEMPTION_WAITS}` is Headgate's own, too."
    )
    without = ", ".join(code(name) for name in reading.WITHOUT_EFFECT)
    accepted = (
        f"## Fields without effect\n\n{without}: how Kueue's manager runs. Headgate accepts and ignores them; its "
        "processes have [settings](settings.md) for the same."
    )
    frameworks = (
        f"## Job integrations\n\n`integrations.frameworks` may list {', '.join(map(code, SUPPORTED))}. These are all "
        "of Kueue's; others are refused, unless "
        "[a package](../guides/job-kinds.md#add-a-kind-from-a-package-of-your-own) brings them. `externalFrameworks` "
        "is accepted, because Headgate schedules the Workloads that other controllers make.\n\n"
        "`integrations.labelKeysToCopy` names labels of jobs that their Workloads are created "
        "with, as with Kueue: of the pods of a group each label may have one value only, and the group has no Workload "
        "while they differ (Event `ErrWorkloadCompose`); Workloads of LeaderWorkerSets get them, those of StatefulSets "
        "do not. A Workload does not follow when labels of its job change."
    )
    return page("Kueue's Configuration", INTRODUCTION, *decides, own, accepted, frameworks, _gates())


def _fields(section: type[msgspec.Struct]) -> str:
    rows = []
    for field in msgspec.structs.fields(section):
        default: Any = field.default if field.default is not msgspec.NODEFAULT else field.default_factory
        if field.default is msgspec.NODEFAULT and callable(default):
            default = default()
        shown = "required" if default is msgspec.NODEFAULT else code(msgspec.json.encode(default).decode())
        rows.append((code(field.name), shown))
    return table(("in the log", "left out"), rows)


def _gates() -> str:
    own = f"{code(feature_gates.PREEMPTION_WAITS)} exists only in Headgate and is on unless a file turns it off."
    gates = table(
        ("gate", "default", "requires", "in Headgate"),
        [
            (code(gate.name), _default(gate), ", ".join(map(code, gate.requires)), _effect(gate.name))
            for _, gate in sorted(feature_gates.KNOWN.items())
        ],
    )
    refused = table(("refused when true", "because"), [(code(name), why) for name, why in REFUSED.items()])
    return (
        "## Feature gates\n\nEvery gate of Kueue, and what it does here. Those that decisions read are in the log "
        f"with their values.\n\n{gates}\n\n{own}\n\n### Refused gates\n\n{refused}"
    )


def _default(gate: feature_gates.FeatureGate) -> str:
    return "on, locked" if gate.is_locked else "on" if gate.is_on else "off"


def _effect(name: str) -> str:
    if name in feature_gates.DEFAULTS:
        return "read by decisions"
    if name in feature_gates.ALWAYS_ON:
        return "always on, refused when false"
    return "refused when true, see below" if name in REFUSED else OTHERS[name]
