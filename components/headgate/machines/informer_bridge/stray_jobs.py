"""
Stray jobs: jobs without a queue that run although the job that controls them is not admitted.

A job that names no queue is not in the log, and one below a job with a queue is run by that. If such a job runs
nevertheless (somebody has resumed it, or its controller does not know of suspension), the log gets it, so that the
ungater suspends it; once it is suspended it is dropped from the log again. Kueue does the same at each change of one
(its ReconcileGenericJob). Called by the bridge's machine for each job that is no fact.
"""

from typing import Final

from headgate.core.api import job_kinds
from headgate.core.api.watched_objects import METADATA_DECODER, controller_of
from headgate.core.reading.decoding import UnreadableObjectError, read
from headgate.core.reading.rules import ReadingRules
from headgate.core.state.tables import State
from headgate.core.workload import owners
from headgate.events import facts

_OWNED: Final = b'"ownerReferences"'


def stray_below(state: State, resource: str, raw: bytes) -> facts.JobObserved | None:
    """The fact about a job without a queue that must not run now; None for any other."""
    if job_kinds.of_resource(resource) is None or _OWNED not in raw:
        return None
    meta = METADATA_DECODER.decode(raw).metadata
    owner = controller_of(meta)
    if owner is None or not owners.is_job(state, owner):
        return None
    above = state.jobs.get(job_kinds.owner_key(meta.namespace, owner))
    if above is None or above.job.uid != owner.uid:
        return None
    try:
        fact = read(resource, raw, ReadingRules(unnamed=True)).fact
    except UnreadableObjectError:
        return None
    if not isinstance(fact, facts.JobObserved):
        return None
    job = fact.spec
    if job.suspended or job.finished is not None or job.deleting:
        return None
    top = owners.runs_above(state, fact.job, job)
    return fact if top is not None and not owners.may_run_below(state, job, top) else None
