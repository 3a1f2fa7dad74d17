"""
Stray jobs: jobs without a queue that run although the job that controls them is not admitted.

A job that names no queue is not in the log, and one below a job with a queue is run by that. If such a job runs
nevertheless (somebody has resumed it, or its controller does not know of suspension), the log gets it, so that the
ungater suspends it; once it is suspended it is dropped from the log again. Kueue does the same at each change of one
(its ReconcileGenericJob). Called by the bridge's machine for each job that is no fact; which owners are above one is
found by `parents`.
"""

from typing import Final

from msgspec.structs import replace

from headgate.core.api import job_kinds
from headgate.core.api.watched_objects import METADATA_DECODER, controller_of
from headgate.core.reading.decoding import UnreadableObjectError, read
from headgate.core.reading.rules import ReadingRules
from headgate.core.state.tables import State
from headgate.core.workload import owners
from headgate.events import facts
from headgate.events.ids import split_key

_OWNED: Final = b'"ownerReferences"'


def running_below(state: State, resource: str, raw: bytes) -> facts.JobObserved | None:
    """
    The fact about a job without a queue that runs below another one; None for any other.

    Where its owner is not in the state, only in namespaces with a LocalQueue: nothing of another one is ever admitted.
    """
    if job_kinds.of_resource(resource) is None or _OWNED not in raw:
        return None
    meta = METADATA_DECODER.decode(raw).metadata
    owner = controller_of(meta)
    if owner is None or not job_kinds.is_followed(owner):
        return None
    is_shown = job_kinds.owner_key(meta.namespace, owner) in state.jobs
    if not is_shown and not any(split_key(queue)[0] == meta.namespace for queue in state.local_queues):
        return None
    try:
        fact = read(resource, raw, ReadingRules(unnamed=True)).fact
    except UnreadableObjectError:
        return None
    if not isinstance(fact, facts.JobObserved):
        return None
    job, record = fact.spec, state.jobs.get(fact.job)
    if job.suspended or job.finished is not None or job.deleting:
        return None
    if record is not None and (record.job.uid, record.job.owner) == (job.uid, job.owner):
        fact = replace(fact, spec=replace(job, ancestors=record.job.ancestors))
    return fact


def must_stop(state: State, fact: facts.JobObserved) -> bool:
    """Whether such a job must not run now: a job above it has a queue, and is not admitted."""
    top = owners.runs_above(state, fact.job, fact.spec)
    return top is not None and not owners.may_run_below(state, fact.spec, top)
