"""
The frameworks of Kueue's Configuration: which kinds of jobs a cell runs.

`integrations.frameworks` names kinds as Kueue does. `SUPPORTED` are those that Headgate runs, which are all of Kueue's;
`headgate.core.jobs.registry` adds the names of kinds that come from other packages. Without a list Headgate runs
batch/v1 Jobs alone, which is Kueue's default.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final

from msgspec import UNSET

from headgate.core.config.fields import ConfigurationError, Fields, nearest
from headgate.core.config.gate_effects import SPARK_APPLICATIONS
from headgate.events.configuration import IntegrationsConfiguration

JOB_FRAMEWORK: Final = "batch/job"
POD_FRAMEWORK: Final = "pod"
SPARK_FRAMEWORK: Final = "sparkoperator.k8s.io/sparkapplication"
OF_POD_OWNERS: Final = ("deployment", "statefulset", "leaderworkerset.x-k8s.io/leaderworkerset")
"""The frameworks whose objects are queued by their pods: they imply `pod` for the pods of these objects."""

SUPPORTED: Final[dict[str, None]] = dict.fromkeys(
    (
        JOB_FRAMEWORK,
        "jobset.x-k8s.io/jobset",
        "kubeflow.org/pytorchjob",
        "kubeflow.org/tfjob",
        "kubeflow.org/xgboostjob",
        "kubeflow.org/paddlejob",
        "kubeflow.org/jaxjob",
        "kubeflow.org/mpijob",
        "trainer.kubeflow.org/trainjob",
        "ray.io/rayjob",
        "ray.io/raycluster",
        "ray.io/rayservice",
        SPARK_FRAMEWORK,
        "workload.codeflare.dev/appwrapper",
        POD_FRAMEWORK,
        *OF_POD_OWNERS,
    )
)
"""The frameworks that may be named: those of Headgate, and those that were added."""

_KIND_ARG: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*\.v[a-z0-9]+\.[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def is_named(framework: str, frameworks: Collection[str]) -> bool:
    """Whether a list of frameworks enables one: it names it, or for `pod` a framework that implies it."""
    return framework in frameworks or is_implied(framework, frameworks)


def is_implied(framework: str, frameworks: Collection[str]) -> bool:
    """Whether a list of frameworks enables one only because of others: for the objects of these, and for no others."""
    return (
        framework == POD_FRAMEWORK and framework not in frameworks and any(each in frameworks for each in OF_POD_OWNERS)
    )


def read_integrations(section: Fields, flags: Mapping[str, bool], *, is_old: bool) -> IntegrationsConfiguration:
    """The section `integrations` of a file, which sets these feature gates. Raises ConfigurationError."""
    frameworks = section.texts("frameworks")
    for index, framework in enumerate(frameworks):
        at = f"{section.at('frameworks')}[{index}]"
        _check(at, framework)
        if framework == SPARK_FRAMEWORK and not flags.get(SPARK_APPLICATIONS, False):
            problem = f"this integration is alpha, and the feature gate {SPARK_APPLICATIONS} is off"
            raise ConfigurationError(at, problem, f"set featureGates.{SPARK_APPLICATIONS} to true")
    # Headgate schedules the Workloads that other controllers make, whatever their kinds.
    for index, kind in enumerate(section.texts("externalFrameworks")):
        if _KIND_ARG.fullmatch(kind) is None:
            at = f"{section.at('externalFrameworks')}[{index}]"
            raise ConfigurationError(
                at, f"{kind!r} names no kind", "write Kind.version.group, such as Foo.v1.example.com"
            )
    label_keys = tuple(dict.fromkeys(section.texts("labelKeysToCopy")))
    section.ignore(*(("podOptions",) if is_old else ()))
    section.done()
    return IntegrationsConfiguration(frameworks=frameworks or (JOB_FRAMEWORK,), label_keys_to_copy=label_keys or UNSET)


def _check(at: str, framework: str) -> None:
    if framework not in SUPPORTED:
        raise ConfigurationError(at, f"Kueue has no integration {framework!r}", nearest(framework, list(SUPPORTED)))
