"""
The cycle: which heads are admitted, which workloads they preempt, and the verdicts on the others.

A function of the state alone: `decide_cycle` returns the events of the scheduler's next commit, and returns the same
events for the same state. It is Kueue's cycle (`kueue-semantics` section 3):

    entries      the data of a cycle: `CycleEntry`, `Cycle`
    nominating   each head against the quota at the start: rejected outright, or flavors and preemption targets
    order        the processing order: by borrowing, priority and time, or by a tournament of dominant resource shares
    occupancy    the topology domains that entries get, and that victims leave
    processing   one by one, each on the quota that those before it have left (`evaluate`)
    verdicts     the outcome of each head, as events (`events_of`)
    deciding     the heads of the scheduler process's cycle (`decide_cycle`)

**Standing heads.** Kueue decides the head of each ClusterQueue in every cycle, even when nothing has changed for it.
Here a head with a verdict waits until something has changed. But its reservation must hold in every cycle, its victims
must count as gone, and it may fit now. So besides the offered heads each cycle decides those that block their
ClusterQueue in the same trees (StrictFIFO heads with a verdict, workloads that wait for their victims or behind
another's reservation), at their place in the order. It writes their verdict only when it differs from the last one.

A head that waits for a time keeps its verdict until then, also where its message would differ, or where others of the
cycle come before it. And a standing head gets no quota while workloads sleep before it in a ClusterQueue that preempts:
what was freed may be enough for those. The queue manager wakes whoever is next.

**Immediate retries terminate.** A head whose verdict has scope "immediate" is decided again in the next cycle, so there
must be no state on which this repeats forever. There are four such verdicts.

- "No candidates", of a StrictFIFO head in a cycle that has admitted a borrowing workload: that one may be a candidate.
  It ends with the admissions.
- "More victims than one cycle records": the next cycle records more of them.
- "Flavors left to try" is given only while the scan advances: its position, the flavor indexes of all pod sets read as
  one number, must be beyond the position that it resumed from, and there are finitely many. A resumed scan that ends
  without success is no reason for another cycle: where its head would be the one that blocks its ClusterQueue, the scan
  restarts in the same cycle and covers all flavors, as for a standing head. So the verdict that parks it covers all of
  them, and where that scan stops is not "left to try".
- "No longer fits" and "overlapping targets" have this scope only when, in the head's tree and before its turn, the
  cycle has changed something: a workload was admitted, or newly preempted, or an offered head has charged quota, unless
  that one waits for a time: it is standing in the next cycle, and charges the same. Where an offered head gets this
  verdict once more, it is not written again: the head is still offered.

Admissions and preemptions on one state are finitely many, since a cycle frees nothing: an admitted workload is not
pending any more, and a preempted one is not preempted again until its job has stopped, which no cycle decides. A head
that only charged quota has got a verdict of its own, and in the next cycle it is absent, tries another flavor, or is
standing. If it is standing, the next cycle decides the same heads in the same order, and as a standing head that takes
nothing new it does not cause immediate retries: only a head after it is offered now, which may cause retries of heads
after that one. Every other head is parked until something changes: quota is freed, for example by a victim, or a spec
is changed.

Owns: one scheduling cycle, from the heads to the events of its commit.
Called by: the scheduler's machine, `headgate replay`, the emulation of Kueue in `headgate.testing.reference`.
May import: preemption, flavors, fold, quota, topology, workload, api, state, config, kubernetes, events.
"""

from headgate.core.cycle.deciding import (
    ADMISSIONS_MAX,
    EVENTS_MAX,
    HEADS_MAX,
    decide_cycle,
    is_ready,
    is_unplaced,
    unplaced_in,
)
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
    CycleEntry,
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
    "CycleEntry",
    "decide_cycle",
    "evaluate",
    "events_of",
    "is_ready",
    "is_unplaced",
    "unplaced_in",
]
