"""
Preemption on many nodes at once, by sums of what pods request instead of by running filters.

That says the same as `dry_run` where what pods of lower priority do to a pod is to use up what it requests: where each
filter that is not skipped reads Node objects alone, or asks for free amounts (`AmountsFilter`), or passes as things
are and is only eased by fewer pods (`EasedFilter`). `tests/core/placement` holds both equal.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.claims import NominatedClaims
from headgate.core.placement.framework.amounts import AmountsQuestion, is_static
from headgate.core.placement.framework.cycle import PlacementCycle
from headgate.core.placement.framework.steps import FilterStep
from headgate.core.placement.framework.supposing import EasedFilter
from headgate.core.placement.pods import PodInfo
from headgate.core.placement.preemption_budgets import UNPROTECTED, Budgets
from headgate.core.placement.preemption_dry_run import NO_VICTIMS
from headgate.core.placement.preemption_found import FoundCandidates
from headgate.core.placement.preemption_pods import PodsByImportance
from headgate.core.placement.requests import PODS

Bools = NDArray[np.bool_]

SIMULATE: Final = -1
"""In place of an id: sums do not tell."""


class Arithmetic:
    """The preemption of one pod, in arrays. `of` makes it for pods that it holds for."""

    def __init__(self, cycle: PlacementCycle, steps: list[FilterStep], question: AmountsQuestion) -> None:
        self._cycle = cycle
        self._columns = cycle.cluster.columns
        self._steps = steps
        self._question = question
        self._amounts = question.wanted
        self._priority = cycle.pod.priority
        self._pods = cycle.cluster.index(PodsByImportance)
        self._pods.refresh()
        self._claims = cycle.cluster.index(NominatedClaims).of(cycle.pod)

    @classmethod
    def of(cls, cycle: PlacementCycle) -> "Arithmetic | None":
        """For the pod of a cycle; None if sums do not tell of any node."""
        steps: list[FilterStep] = [step for step in cycle.framework.filters if step.name not in cycle.skipped_filters]
        question = AmountsQuestion.of(cycle, steps)
        if question is None:
            return None
        for step in steps:
            is_eased = isinstance(step.plugin, EasedFilter) and step.plugin.is_eased(cycle)
            if not (step is question.step or is_static(step) or is_eased):
                return None
        return cls(cycle, steps, question)

    # --- fitting ---------------------------------------------------------------------------------------------------

    def verdicts(self, rows: Rows) -> Ints:
        """
        Per row the id of what the filters say without the pods of lower priority.

        It is 0 where the pod would fit, and SIMULATE where only running the filters tells.
        """
        ids = np.zeros(len(rows), dtype=np.int64)
        is_eased = False
        for step in self._steps:
            open_places = np.flatnonzero(ids == 0)
            if step is self._question.step:
                ids[open_places] = self._question.lacking(rows[open_places], self._used)
                continue
            said = step.answer_rows(self._cycle, rows[open_places])
            if not is_static(step):
                is_eased = True
                said = np.where(said != 0, SIMULATE, 0)
            ids[open_places] = said
        if is_eased and self._claims:
            ids[self._claims.is_claimed[rows]] = SIMULATE
        ids[self._pods.below(self._priority, PODS)[rows] == 0] = self._cycle.statuses.id_of(NO_VICTIMS)
        return ids

    def _used(self, rows: Rows, resource: str) -> Ints:
        """Per row what would be used of a resource without pods of lower priority, and with this one."""
        columns = self._columns
        used = columns.pod_count[rows] if resource == PODS else columns.requested(resource)[rows]
        used = used - self._pods.below(self._priority, resource)[rows] + self._amounts[resource]
        return used + self._claims.of(resource)[rows] if self._claims else used

    # --- victims ---------------------------------------------------------------------------------------------------

    def found(self, rows: Rows) -> FoundCandidates:
        """Who would have to go from each of some rows that the pod would fit on."""
        width = int(self._columns.pod_count[rows].max(initial=1))
        priorities = self._pods.priorities[rows, :width]
        is_lower = priorities < self._priority
        violating = self._violating(rows, is_lower)
        victims = self._victims(rows, is_lower, violating)
        every, first = np.arange(len(rows)), victims.argmax(axis=1)
        return FoundCandidates(
            rows=rows,
            violations=np.zeros(len(rows), dtype=np.int64) if violating is None else (victims & violating).sum(axis=1),
            highest=priorities[every, first],
            priorities=((priorities + 2**31) * victims).sum(axis=1),
            counts=victims.sum(axis=1),
            started=self._pods.started[rows, first],
            victims_of=lambda place: self._victims_at(int(rows[place]), victims[place]),
        )

    def _victims(self, rows: Rows, is_lower: Bools, violating: Bools | None) -> Bools:
        """
        By row and place: the pods that do not come back.

        Those come first whose budgets do not allow their end, then the others, each from the most important one on.
        """
        width = is_lower.shape[1]
        counts = is_lower.sum(axis=1)
        if violating is None:
            coming = (self._columns.pod_count[rows] - counts)[:, None] + np.arange(counts.max(initial=0))
        else:
            turns = np.where(is_lower, np.where(violating, 0, 1), 2)
            coming = turns.argsort(axis=1, kind="stable")[:, : counts.max(initial=0)]
        # Behind the last pod of a row there is a place for none.
        coming = np.where(np.arange(coming.shape[1]) < counts[:, None], coming, width)
        requests, free = self._requests(rows, coming, width), self._free(rows)
        refused = _refused(requests, free, counts)
        victims = np.zeros((len(rows), width + 1), dtype=np.bool_)
        np.put_along_axis(victims, coming, refused, axis=1)
        return victims[:, :width]

    def _free(self, rows: Rows) -> list[Ints]:
        """By resource, per row: what is left for pods that come back."""
        return [self._columns.allocatable(resource)[rows] - self._used(rows, resource) for resource in self._amounts]

    def _requests(self, rows: Rows, coming: Ints, width: int) -> list[Ints]:
        """By resource: what the coming pods request, by row and turn."""
        requests = []
        for resource in self._amounts:
            if resource == PODS:
                requests.append(np.ones(coming.shape, dtype=np.int64))
            else:
                every = self._pods.requests(resource)
                requests.append(every[rows[:, None], np.minimum(coming, width - 1)])
        return requests

    def _victims_at(self, row: int, victims: Bools) -> tuple[PodInfo, ...]:
        pods = self._pods.pods(row)
        return tuple(pods[place] for place in np.flatnonzero(victims).tolist())

    # --- budgets ---------------------------------------------------------------------------------------------------

    def _violating(self, rows: Rows, is_lower: Bools) -> Bools | None:
        """By row and place: the pods of lower priority whose budgets do not allow all of them to go; None for none."""
        budgets = self._cycle.cluster.index(Budgets)
        if not budgets.all:
            return None
        groups = self._pods.groups(rows, is_lower.shape[1])
        protected, places = np.nonzero(is_lower & (groups != UNPROTECTED))
        if not len(protected):
            return None
        chains = [members[groups[protected, places]] for members in budgets.members()]
        numbers = np.concatenate(chains)
        at = np.flatnonzero(numbers >= 0)
        numbers = numbers[at]
        protected, places = np.tile(protected, len(chains))[at], np.tile(places, len(chains))[at]
        if budgets.has_counted():
            triples = zip(rows[protected].tolist(), places.tolist(), numbers.tolist(), strict=True)
            gone = [budgets.is_counted(number, self._pods.pods(row)[place]) for row, place, number in triples]
            left = np.flatnonzero(~np.array(gone, dtype=np.bool_))
            protected, places, numbers = protected[left], places[left], numbers[left]
        allowed = np.array([budgets.allowed(number) for number in range(len(budgets.all))], dtype=np.int64)
        exceeded = _ranks(protected * len(allowed) + numbers, places) >= allowed[numbers]
        if not exceeded.any():
            return None
        violating = np.zeros_like(is_lower)
        violating[protected[exceeded], places[exceeded]] = True
        return violating


def _ranks(keys: Ints, places: Ints) -> Ints:
    """Of each entry, how many entries of the same key have a place before it."""
    order = np.lexsort((places, keys))
    sorted_keys = keys[order]
    begins = np.r_[True, sorted_keys[1:] != sorted_keys[:-1]]
    starts = np.maximum.accumulate(np.where(begins, np.arange(len(keys)), 0))
    ranks = np.empty(len(keys), dtype=np.int64)
    ranks[order] = np.arange(len(keys)) - starts
    return ranks


def _refused(requests: list[Ints], free: list[Ints], counts: Ints) -> Bools:
    """
    By row and turn: the pods that there is no room for, where pods come one after the other and stay if there is.

    :param requests: by resource: what the pods request, by row and turn
    :param free: by resource: what is free of it, per row
    :param counts: per row how many pods come
    """
    shape = requests[0].shape
    # As long as all have room, who stays follows from running sums.
    sums = [np.cumsum(wanted, axis=1) for wanted in requests]
    fits = np.ones(shape, dtype=np.bool_)
    for total, left in zip(sums, free, strict=True):
        fits &= total <= left[:, None]
    first = np.minimum(fits.sum(axis=1), counts)
    refused = np.zeros(shape, dtype=np.bool_)
    rows = np.flatnonzero(first < counts)
    before = np.maximum(first - 1, 0)
    left_of = [
        left - np.where(first > 0, total[np.arange(shape[0]), before], 0)
        for total, left in zip(sums, free, strict=True)
    ]
    # From the first one that has none on, one by one.
    turn = 0
    while len(rows):
        at = first[rows] + turn
        stays = np.ones(len(rows), dtype=np.bool_)
        wanted = [each[rows, at] for each in requests]
        for each, left in zip(wanted, left_of, strict=True):
            stays &= each <= left[rows]
        for each, left in zip(wanted, left_of, strict=True):
            left[rows] -= each * stays
        refused[rows, at] = ~stays
        turn += 1
        rows = rows[first[rows] + turn < counts[rows]]
    return refused
