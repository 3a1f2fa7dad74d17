"""The integrations, by kind of job. All lookups use this module."""

from typing import Final

from headgate.core.api import job_kinds
from headgate.core.jobs.batch_job import BatchJob
from headgate.core.jobs.integration import Integration
from headgate.events.ids import JobKey

INTEGRATIONS: Final[tuple[Integration, ...]] = (BatchJob(),)

_BY_KIND: Final = {each.kind: each for each in INTEGRATIONS}
assert set(_BY_KIND) == set(job_kinds.JOB_KINDS)


def integration_of(key: JobKey) -> Integration:
    """
    The integration of a job's kind.

    Raises KeyError for a job that Headgate does not run.
    """
    return _BY_KIND[job_kinds.kind_of(key)]
