"""What a tally counts of a log."""

from tests.core.audit.test_log import a_cell, preempt

from headgate.core import fold
from headgate.core.views.run_metrics import RunTally


def test_a_preemption_counts_in_the_queue_that_gives_way() -> None:
    """Once for each that has to leave; who comes has not waited to its end yet."""
    history = a_cell()
    preempt(history, "n/one")
    tally = RunTally(fold.new_state("main"))
    for logged in history.commits:
        fold.apply(tally.state, logged)
        tally.feed(logged)
    assert (tally.of("a").preempted, len(tally.of("a").waits_ms)) == (1, 1)
