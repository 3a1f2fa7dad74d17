"""
The frameworks of Kueue's Configuration: which kinds of jobs a cell runs.

`integrations.frameworks` names kinds as Kueue does. `SUPPORTED` are those that Headgate runs;
`headgate.core.jobs.registry` adds the names of kinds that come from other packages. Without a list Headgate runs
batch/v1 Jobs alone, which is Kueue's default.
"""

import re
from typing import Final

from headgate.core.config.fields import ConfigurationError, Fields, nearest
from headgate.events.configuration import IntegrationsConfiguration

JOB_FRAMEWORK: Final = "batch/job"
POD_FRAMEWORK: Final = "pod"
OF_POD_OWNERS: Final = ("deployment",)
"""The frameworks whose objects are queued pod by pod: they imply `pod` for the pods of these objects."""

_KUEUES: Final = (
    JOB_FRAMEWORK,
    "deployment",
    "jobset.x-k8s.io/jobset",
    "kubeflow.org/jaxjob",
    "kubeflow.org/mpijob",
    "kubeflow.org/paddlejob",
    "kubeflow.org/pytorchjob",
    "kubeflow.org/tfjob",
    "kubeflow.org/xgboostjob",
    "leaderworkerset.x-k8s.io/leaderworkerset",
    "pod",
    "ray.io/raycluster",
    "ray.io/rayjob",
    "ray.io/rayservice",
    "sparkoperator.k8s.io/sparkapplication",
    "statefulset",
    "trainer.kubeflow.org/trainjob",
    "workload.codeflare.dev/appwrapper",
)

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
        "ray.io/rayjob",
        "ray.io/raycluster",
        "ray.io/rayservice",
        "workload.codeflare.dev/appwrapper",
        POD_FRAMEWORK,
        *OF_POD_OWNERS,
    )
)
"""The frameworks that may be named: those of Headgate, and those that were added."""

_KIND_ARG: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*\.v[a-z0-9]+\.[a-z0-9]([a-z0-9.-]*[a-z0-9])?")


def read_integrations(section: Fields, *, is_old: bool) -> IntegrationsConfiguration:
    """The section `integrations` of a file. Raises ConfigurationError."""
    frameworks = section.texts("frameworks")
    for index, framework in enumerate(frameworks):
        _check(f"{section.at('frameworks')}[{index}]", framework)
    # Headgate schedules the Workloads that other controllers make, whatever their kinds.
    for index, kind in enumerate(section.texts("externalFrameworks")):
        if _KIND_ARG.fullmatch(kind) is None:
            at = f"{section.at('externalFrameworks')}[{index}]"
            raise ConfigurationError(
                at, f"{kind!r} names no kind", "write Kind.version.group, such as Foo.v1.example.com"
            )
    if section.texts("labelKeysToCopy"):
        problem = "Headgate does not copy labels of Jobs to their Workloads"
        raise ConfigurationError(section.at("labelKeysToCopy"), problem, "remove it")
    section.ignore(*(("podOptions",) if is_old else ()))
    section.done()
    return IntegrationsConfiguration(frameworks=frameworks or (JOB_FRAMEWORK,))


def _check(at: str, framework: str) -> None:
    if framework in SUPPORTED:
        return
    if framework in _KUEUES:
        remedy = f"list only {', '.join(SUPPORTED)}, or have a controller of yours make Workloads"
        raise ConfigurationError(at, f"Headgate has no integration {framework!r}", remedy)
    raise ConfigurationError(at, f"Kueue has no integration {framework!r}", nearest(framework, [*_KUEUES, *SUPPORTED]))
