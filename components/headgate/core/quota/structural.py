"""
The structural events: those after which trees of quota and catalogs of flavors are out of date.

Called by the owners of a `headgate.core.quota.cache.Forest` or a `headgate.core.flavors.catalog.Catalog`, which pass
these the structural events and no others.
"""

from typing import TYPE_CHECKING, Final, get_args

from headgate.events import facts
from headgate.events.base import EventBase

if TYPE_CHECKING:
    from typing_extensions import TypeIs

QueueFact = (
    facts.ClusterQueueObserved
    | facts.ClusterQueueDeleted
    | facts.CohortObserved
    | facts.CohortDeleted
    | facts.ResourceFlavorObserved
    | facts.ResourceFlavorDeleted
    | facts.TopologyObserved
    | facts.TopologyDeleted
    | facts.AdmissionCheckObserved
    | facts.AdmissionCheckDeleted
)
"""Facts from which the activeness of a ClusterQueue follows."""

Structural = QueueFact | facts.ConfigurationObserved | facts.LimitRangeObserved | facts.LimitRangeDeleted
"""The structural events."""

_STRUCTURAL: Final[frozenset[type[EventBase]]] = frozenset(get_args(Structural))


def is_structural(event: EventBase) -> "TypeIs[Structural]":
    """Whether an event is structural."""
    return type(event) in _STRUCTURAL
