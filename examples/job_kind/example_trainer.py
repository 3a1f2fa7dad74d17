"""
A kind of job from a package of its own: `Trainer` (example.com/v1).

A Trainer has a leader and workers, and `spec.suspend`. Its status has the number of running pods and a phase. The
package names this class in its pyproject.toml:

    [project.entry-points."headgate.integrations"]
    "example.com/trainer" = "example_trainer:Trainer"

and the configuration enables it by `integrations.frameworks: [batch/job, example.com/trainer]`. The service accounts of
the informer bridge (get, list, watch), the ungater (get, patch) and the binder (delete) need rights for `trainers`.
"""

from collections.abc import Sequence

from headgate.core.api.job_kinds import custom
from headgate.core.jobs.integration import Json
from headgate.core.jobs.suspendable import JobStatus, PodSetSource, Suspendable, at, number_at


class Trainer(Suspendable):
    """The integration of Trainer."""

    kind = custom("example.com", "v1", "Trainer")

    def sources(self, obj: Json) -> list[PodSetSource]:
        """The templates, which are changed in place, and how many pods each has."""
        spec = obj["spec"]
        return [
            PodSetSource(name="leader", count=1, template=spec["leader"], at="spec.leader"),
            PodSetSource(name="workers", count=number_at(spec, 1, "size"), template=spec["worker"], at="spec.worker"),
        ]

    def status(self, obj: Json, sources: Sequence[PodSetSource]) -> JobStatus:
        """Whether pods of it run, all of them are ready, and how it has ended."""
        running, phase = number_at(obj, 0, "status", "running"), at(obj, "status", "phase")
        return JobStatus(
            active=running > 0,
            pods_ready=running == sum(each.count for each in sources),
            succeeded=phase == "Done",
            failed=phase == "Failed",
            message=str(at(obj, "status", "message") or ""),
        )
