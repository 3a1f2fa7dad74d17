"""
Parents: whether a job that another job controls is run by that one, or by one further up.

A job whose owner is managed, or whose owner's owner is, and so on, gets no Workload
(`headgate.core.workload.owners.runs_above`). Each kind of jobs has a watch of its own, so a job may be shown before its
parent; and an owner that names no queue, or is of a kind that is not enabled, is not in the log at all. So an owner
that is absent from the state is read once, by the rules by which facts are made. One that is a fact will be shown, and
the job waits for it. Any other runs nothing itself: owners are followed through it to the one above, and the job's fact
gets what was found (`Job.ancestors`). They are followed as far as Kueue follows them (FindAncestorJobManagedByKueue).

Answers are kept until the owner is shown or the bridge restarts.
"""

from collections import OrderedDict
from typing import Final

import msgspec

from headgate.core.api import job_kinds
from headgate.core.api.watched_objects import METADATA_DECODER, controller_of
from headgate.core.machine.api_results import is_success
from headgate.core.machine.contract import Call, Command, Completed
from headgate.core.reading.decoding import UnreadableObjectError, read
from headgate.core.reading.rules import rules_of
from headgate.core.state.tables import State
from headgate.core.workload import owners
from headgate.events.ids import JobKey, JobRef
from headgate.events.objects import Job, OwnerReference

KNOWN_MAX: Final = 10_000
"""How many answers are kept."""

CALLS_MAX: Final = 64
"""The maximum number of concurrent reads of owners."""


class _Answer(msgspec.Struct, frozen=True):
    """What is known of an owner that is not in the state: whether it will be, and else what controls it."""

    will_show: bool = False
    controller: OwnerReference | None = None


class _Question(msgspec.Struct, frozen=True):
    namespace: str
    owner: OwnerReference


class Parents:
    """The jobs that wait for their parents. The bridge's machine passes on what concerns them."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._waiting: dict[str, dict[JobKey, None]] = {}
        """By uid of an owner: the jobs that wait for it or for the answer about it."""
        self._questions: OrderedDict[str, _Question] = OrderedDict()
        self._calls: dict[str, _Question] = {}
        self._known: OrderedDict[str, _Answer] = OrderedDict()
        """By uid of an owner."""

    def above(self, key: JobKey, job: Job) -> tuple[OwnerReference, ...] | None:
        """
        What is above the owner of a job, as far as the state does not have it; None as long as that is not known.

        The job is among those to be examined again when it is.
        """
        if job.ancestors:
            return job.ancestors
        namespace, owner = JobRef.parse(key).namespace, job.owner
        found: list[OwnerReference] = []
        while owner is not None and job_kinds.is_followed(owner) and owner not in found:
            found.append(owner)
            if self._is_there(namespace, owner) or len(found) > owners.OWNERS_MAX:
                break
            answer = self._known.get(owner.uid)
            if answer is None or answer.will_show:
                self._wait(key, namespace, owner, is_asked=answer is not None)
                return None
            owner = answer.controller
        return tuple(found[1:])

    def _is_there(self, namespace: str, owner: OwnerReference) -> bool:
        record = self._state.jobs.get(job_kinds.owner_key(namespace, owner))
        return record is not None and record.job.uid == owner.uid and owners.is_job(self._state, owner)

    def _wait(self, key: JobKey, namespace: str, owner: OwnerReference, *, is_asked: bool) -> None:
        self._waiting.setdefault(owner.uid, {})[key] = None
        if not is_asked and f"parent/{owner.uid}" not in self._calls:
            self._questions.setdefault(owner.uid, _Question(namespace, owner))

    def settle(self, calls: list[Command]) -> None:
        """Read the owners that are asked for, as far as the limit of calls permits."""
        while self._questions and len(self._calls) < CALLS_MAX:
            uid, question = self._questions.popitem(last=False)
            call_id, path = f"parent/{uid}", job_kinds.owner_path(question.namespace, question.owner)
            self._calls[call_id] = question
            calls.append(Call(id=call_id, method="GET", path=path, lane=path))

    def shown(self, uid: str) -> dict[JobKey, None]:
        """A job is in the state. Returns those that need not wait for it any more."""
        self._known.pop(uid, None)
        return self._waiting.pop(uid, {})

    def passed_over(self, uid: str, raw: bytes) -> dict[JobKey, None]:
        """A job was shown and is no fact: it may have lost its queue. Returns those that need not wait any more."""
        if uid not in self._waiting:
            return {}
        self._remember(uid, _Answer(controller=controller_of(METADATA_DECODER.decode(raw).metadata)))
        return self._waiting.pop(uid)

    def on_completed(self, completed: Completed) -> dict[JobKey, None]:
        """An owner was read. Returns the jobs to examine again."""
        question = self._calls.pop(completed.call_id, None)
        if question is None:
            return {}
        uid = question.owner.uid
        answer = self._read(question, completed.body) if is_success(completed) else _Answer()
        self._remember(uid, answer)
        return {} if answer.will_show else self._waiting.pop(uid, {})

    def _remember(self, uid: str, answer: _Answer) -> None:
        self._questions.pop(uid, None)
        while len(self._known) >= KNOWN_MAX:
            self._known.popitem(last=False)
        self._known[uid] = answer

    def _read(self, question: _Question, body: bytes) -> _Answer:
        """What an owner is. An object that cannot be read counts as absent when it is shown, too."""
        kind = job_kinds.of_owner(question.owner)
        try:
            meta = METADATA_DECODER.decode(body).metadata
            if meta.uid != question.owner.uid:
                return _Answer()
            if kind is not None and owners.is_job(self._state, question.owner) and not kind.of_pods:
                seen = read(kind.resource, body, rules_of(self._state.configuration))
                if seen.fact is not None:
                    return _Answer(will_show=True)
        except (UnreadableObjectError, msgspec.MsgspecError, UnicodeDecodeError):
            return _Answer()
        return _Answer(controller=controller_of(meta))
