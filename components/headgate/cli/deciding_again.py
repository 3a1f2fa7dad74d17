"""Everything that a verification compares, for one replay of one log."""

from headgate.core.verification.check import Check
from headgate.core.verification.creations import CreationCheck
from headgate.core.verification.job_runs import JobRunCheck
from headgate.core.verification.placements import PlacementCheck
from headgate.core.verification.pod_domains import PodDomainCheck
from headgate.core.verification.requests import RequestCheck
from headgate.core.verification.statuses import StatusCheck
from headgate.machines.queue_manager.again import queue_manager_check
from headgate.processes.runtime.extensions import load_placement_plugins


def checks() -> tuple[Check, ...]:
    """The checks of one replay; they are used up by it."""
    return (
        queue_manager_check(),
        PlacementCheck(load_placement_plugins()),
        StatusCheck(),
        JobRunCheck(),
        PodDomainCheck(),
        CreationCheck(),
        RequestCheck(),
    )
