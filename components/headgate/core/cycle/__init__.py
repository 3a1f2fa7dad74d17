"""
The cycle: which heads are admitted, whom they preempt, and what becomes of the others.

A function of the state alone: `decide_cycle` gives the events of the scheduler's next commit, and gives the same ones
again whenever it is asked of the same state. It is Kueue's cycle (`kueue-semantics` section 3):

    entries      what a cycle is made of: `Entry`, `Cycle`
    nominating   each head against the quota at the start: rejected outright, or flavors and whom to preempt
    order        who comes first: by borrowing, priority and time, or by a tournament of dominant resource shares
    processing   one by one, each on what those before it have left (`evaluate`)
    verdicts     what became of each, as events (`events_of`)
    deciding     the heads of the scheduler process's cycle (`decide_cycle`)

**Standing heads.** Kueue decides the head of each ClusterQueue in every cycle, also when nothing has changed for it.
Here a head with a verdict waits until something has; but what it claims must be held in every cycle, its victims must
count as gone, and it may be that it fits now. So beside the offered heads each cycle decides those that block their
ClusterQueue in the same trees (StrictFIFO heads with a verdict, workloads that wait for their victims or behind
another's claim), at their place among the others, and writes their verdict when it has become another.

**A retry at once ends.** A head whose verdict has scope "immediate" is decided again in the next cycle, so there must
not be a state on which that goes on for ever. There are four such verdicts. "Nobody to preempt", of a StrictFIFO head
in a cycle that has admitted somebody who borrows: he may be the one, and it ends with the admissions. "More victims
than one cycle tells": the next tells more of them. "Flavors left to try" is given only while the scan moves on: its
place, the flavor indexes of all pod sets read as one number, must be beyond the place that it went on from, and there
are finitely many. A resumed scan that ends in vain is no reason for another cycle: where its head would be the one that
blocks its ClusterQueue, it begins anew in the same cycle and goes through all flavors, as for a standing head, so that
the verdict that sets it aside is one on all of them; what it then stops at is not "left to try". "No longer fits" and
"overlapping targets" are given it only when, in its tree and before its turn, the cycle has moved on: somebody was
admitted, or preempted anew, or an offered head has charged quota. Admissions and preemptions on one state are finitely
many, since a cycle frees nothing: who is admitted is pending no more, and who is preempted is not told again until its
job has stopped, which no cycle decides. A head that only charged quota has got a verdict of its own, and is gone from
the next cycle, tries on in another flavor, or stands. If it stands the next cycle decides the same heads in the same
order, and as a standing head that takes nothing new it lets nobody retry: only a head that came after it is offered
now, which may let others retry that come later still. Everything else is set aside until something changes: quota is
freed, a victim's among it, or a spec is changed.
"""

from headgate.core.cycle.deciding import ADMISSIONS_MAX, EVENTS_MAX, HEADS_MAX, decide_cycle, is_ready
from headgate.core.cycle.entries import (
    FAILED_AFTER_NOMINATION,
    NAMESPACE_MISMATCH,
    NO_CANDIDATES,
    NO_FIT,
    PENDING_MIGRATION,
    PENDING_PREEMPTION,
    PREEMPTION_GATED,
    PREEMPTS,
    Cycle,
    Entry,
)
from headgate.core.cycle.nominating import ANY_CHANGE
from headgate.core.cycle.processing import evaluate
from headgate.core.cycle.verdicts import events_of

__all__ = [
    "ADMISSIONS_MAX",
    "ANY_CHANGE",
    "EVENTS_MAX",
    "FAILED_AFTER_NOMINATION",
    "HEADS_MAX",
    "NAMESPACE_MISMATCH",
    "NO_CANDIDATES",
    "NO_FIT",
    "PENDING_MIGRATION",
    "PENDING_PREEMPTION",
    "PREEMPTION_GATED",
    "PREEMPTS",
    "Cycle",
    "Entry",
    "decide_cycle",
    "evaluate",
    "events_of",
    "is_ready",
]
