"""
The contract of a plugin: one protocol per extension point.

A plugin is any object with a `name` and the methods of the points that it takes part in; it may be a class of another
package (entry points `headgate.placement_plugins`).

Plugins are pure: they read the cycle and its cluster, write neither, and keep nothing that another answer depends on.

What a plugin's filter or score depends on it declares (`Reads`), and the runtime keeps answers accordingly:

- `NODE`: the pod's spec and this Node object;
- `NODES`: the pod's spec and any Node objects;
- `NODE_AND_PODS`: the pod's spec, this Node object and the pods on it;
- `CLUSTER`: anything; nothing is kept, and the plugin is asked in each attempt. It keeps its own counts in an index of
  the cluster (`PlacementCluster.index`), and answers for all nodes by its vector form.

Of a plugin that declares one of the first three, `pre_filter` (of `pre_score`) reads the pod's shape alone and is kept
too. Answers are kept per `filter_key` (`score_key`): the part of the shape that the plugin reads, so that pods that
differ elsewhere share them. A plugin that also reads objects of other kinds names them in `object_kinds`, a tuple of
types of `placement.objects`: nothing is kept beyond a change of one of them.

The per-node method is the definition. The vector form, where there is one, answers for many rows of the columns at
once and must say the same; `tests/core/placement` holds them equal.
"""

from collections.abc import Callable, Hashable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec

from headgate.core.placement.arrays import Ints, Rows
from headgate.core.placement.framework.events import EventHint
from headgate.core.placement.framework.status import SUCCESS, PluginStatus

if TYPE_CHECKING:
    from headgate.core.placement.columns import Columns
    from headgate.core.placement.framework.cycle import PlacementCycle
    from headgate.core.placement.nodes import NodeInfo
    from headgate.core.placement.pods import PodInfo, PodShape

SCORE_MAX = 100
"""The highest score of a node after normalising; the lowest is 0."""


class Reads(Enum):
    """What an answer depends on beside the pod's spec."""

    NODE = "this Node object"
    NODES = "any Node objects"
    NODE_AND_PODS = "this Node object and the pods on it"
    CLUSTER = "anything"


@runtime_checkable
class Plugin(Protocol):
    """What all plugins have."""

    @property
    def name(self) -> str:
        """The name in the configuration, in statuses and in messages."""
        ...


# --- the queue -----------------------------------------------------------------------------------------------------


@runtime_checkable
class PreEnqueuePlugin(Plugin, Protocol):
    """Whether a pod may enter the queue at all."""

    def pre_enqueue(self, cycle: "PlacementCycle") -> PluginStatus:
        """Success, or a rejection: the pod is gated until an event that the plugin has registered for."""
        ...


@runtime_checkable
class QueueSortPlugin(Plugin, Protocol):
    """The order of the active queue."""

    def sort_key(self, pod: "PodInfo", queued_ms: int) -> tuple[Any, ...]:
        """Pods are taken in ascending order of these keys."""
        ...


@runtime_checkable
class EnqueueExtensions(Plugin, Protocol):
    """Which events may help the pods that the plugin rejects. Without this, any event does."""

    def events(self) -> tuple[EventHint, ...]:
        """The registrations."""
        ...


# --- filters -------------------------------------------------------------------------------------------------------


class PreFiltered(msgspec.Struct, frozen=True):
    """
    What a pre-filter answers.

    `status` Success, Skip (its filter is not needed) or a rejection; `state` is what its filter will find in
    `cycle.filter_states[name]`, an immutable value; `nodes` are the only nodes to be looked at, by name, None for all.
    """

    status: PluginStatus = SUCCESS
    state: Any = None
    nodes: tuple[str, ...] | None = None


@runtime_checkable
class PreFilterPlugin(Plugin, Protocol):
    """What a filter has to know before it looks at nodes."""

    def pre_filter(self, cycle: "PlacementCycle") -> PreFiltered:
        """The state for the filter, a skip, a rejection, or fewer nodes."""
        ...


@runtime_checkable
class PreFilterExtensions(Plugin, Protocol):
    """
    What would be if a pod were, or were not, on a node: for nominated pods and for preemption.

    `node` is hypothetical: it already has, or lacks, the other pod. The answer is the new state, and the old one
    remains as it was; it is for filters that look beyond the node (`Reads.CLUSTER`).
    """

    def add_pod(self, cycle: "PlacementCycle", state: Any, added: "PodInfo", node: "NodeInfo") -> Any:
        """The state with a pod on the node."""
        ...

    def remove_pod(self, cycle: "PlacementCycle", state: Any, removed: "PodInfo", node: "NodeInfo") -> Any:
        """The state without a pod of the node."""
        ...


@runtime_checkable
class FilterPlugin(Plugin, Protocol):
    """Whether a node can take the pod."""

    @property
    def filter_reads(self) -> Reads:
        """What the answer depends on."""
        ...

    def filter(self, cycle: "PlacementCycle", node: "NodeInfo") -> PluginStatus:
        """Success or a rejection."""
        ...


@runtime_checkable
class KeyedFilter(FilterPlugin, Protocol):
    """A filter that reads a part of a pod's shape. Without this, answers are kept per shape."""

    def filter_key(self, shape: "PodShape") -> Hashable:
        """The part of a pod's shape that pre-filter and filter read."""
        ...


@runtime_checkable
class VectorFilter(FilterPlugin, Protocol):
    """A filter with a vector form."""

    def filter_columns(self, cycle: "PlacementCycle", columns: "Columns", rows: Rows) -> Ints:
        """Per row the id (`cycle.statuses.id_of`) of what `filter` answers for that node, in a new array."""
        ...


class ObjectWrite(msgspec.Struct, frozen=True):
    """
    An object that has to be written: kind, key, and a JSON merge patch, whose lists are whole.

    A pre-bind's are written before the pod is bound.
    """

    kind: str
    key: str
    patch: Mapping[str, Any]


class PostFiltered(msgspec.Struct, frozen=True):
    """
    What a post-filter answers.

    `nominated` is the node that the pod is to be nominated to ("" clears a nomination), None to leave it as it is.
    `victims` are the pods that have to go for it, `unnominated` those that lose their nomination to that node.
    `writes` are what has to be written, whatever else helps: those of all plugins that were asked are carried out.
    `details` is for plans and explanations; preemption puts its candidates there.
    """

    status: PluginStatus
    nominated: str | None = None
    victims: tuple[str, ...] = ()
    unnominated: tuple[str, ...] = ()
    writes: tuple[ObjectWrite, ...] = ()
    details: Any = None


@runtime_checkable
class PostFilterPlugin(Plugin, Protocol):
    """What could make a pod schedulable that fits nowhere."""

    def post_filter(self, cycle: "PlacementCycle", statuses: "NodeStatuses") -> PostFiltered:
        """Success with a nomination, Unschedulable to let the next plugin try, or Unresolvable to end."""
        ...


class NodeStatuses(Protocol):
    """
    Why the pod did not fit on each node.

    `rows` are the nodes that were looked at, `ids` the ids of their statuses, `absent` is the status of all others.
    """

    @property
    def rows(self) -> Rows:
        """The nodes that were looked at, in the order of the scan."""
        ...

    @property
    def ids(self) -> Ints:
        """The ids of their statuses."""
        ...

    @property
    def absent(self) -> PluginStatus:
        """The status of all other nodes."""
        ...

    def status_of(self, node: str) -> PluginStatus:
        """The status of a node; that of nodes that were not looked at is Unresolvable (or that of the pre-filter)."""
        ...


# --- scores --------------------------------------------------------------------------------------------------------


class PreScored(msgspec.Struct, frozen=True):
    """What a pre-score answers: Success with a state, `cycle.score_states[name]`, or Skip."""

    status: PluginStatus = SUCCESS
    state: Any = None


@runtime_checkable
class PreScorePlugin(Plugin, Protocol):
    """What a score has to know before it looks at nodes."""

    def pre_score(self, cycle: "PlacementCycle", rows: Rows) -> PreScored:
        """The state for the score; `rows` are the feasible nodes."""
        ...


@runtime_checkable
class ScorePlugin(Plugin, Protocol):
    """How good a node is for the pod."""

    @property
    def score_reads(self) -> Reads:
        """What the raw score depends on."""
        ...

    def score(self, cycle: "PlacementCycle", node: "NodeInfo") -> int:
        """The raw score: from 0 to SCORE_MAX, or any integer if the plugin normalises."""
        ...


@runtime_checkable
class KeyedScore(ScorePlugin, Protocol):
    """A score that reads a part of a pod's shape. Without this, scores are kept per shape."""

    def score_key(self, shape: "PodShape") -> Hashable:
        """The part of a pod's shape that pre-score and score read."""
        ...


@runtime_checkable
class VectorScore(ScorePlugin, Protocol):
    """A score with a vector form."""

    def score_columns(self, cycle: "PlacementCycle", columns: "Columns", rows: Rows) -> Ints:
        """Per row what `score` answers for that node."""
        ...


@runtime_checkable
class NormalizeScore(ScorePlugin, Protocol):
    """A score whose raw values have to be brought into the range from 0 to SCORE_MAX."""

    def normalize(self, cycle: "PlacementCycle", rows: Rows, scores: Ints) -> Ints:
        """The scores of the feasible nodes `rows`, normalised; `scores` remains as it was."""
        ...


# --- binding -------------------------------------------------------------------------------------------------------


class Assumed(msgspec.Struct, frozen=True):
    """An object as it will be once what is reserved is carried out; `kind` is a type of `placement.objects`."""

    kind: type
    key: str
    object: Any


class Reserved(msgspec.Struct, frozen=True):
    """
    What is set aside for a pod on its node: Success, and objects that all others are to see already.

    They stand in the cluster until they are written, or are put back as they were when the pod is not bound after all.
    """

    status: PluginStatus = SUCCESS
    assumed: tuple[Assumed, ...] = ()


@runtime_checkable
class ReservePlugin(Plugin, Protocol):
    """What has to be set aside for a pod on its node."""

    def reserve(self, cycle: "PlacementCycle", node: "NodeInfo") -> Reserved:
        """What is set aside, or a rejection."""
        ...


class Permitted(msgspec.Struct, frozen=True):
    """Success, a rejection, or Wait for at most so long."""

    status: PluginStatus = SUCCESS
    wait_ms_max: int = 0


@runtime_checkable
class PermitPlugin(Plugin, Protocol):
    """Whether a placed pod may be bound already."""

    def permit(self, cycle: "PlacementCycle", node: "NodeInfo") -> Permitted:
        """The permission."""
        ...


class PreBound(msgspec.Struct, frozen=True):
    """Success when nothing is left to do, or Wait for the writes to have been made and answered."""

    status: PluginStatus = SUCCESS
    writes: tuple[ObjectWrite, ...] = ()


@runtime_checkable
class PreBindPlugin(Plugin, Protocol):
    """What has to be true before a pod is bound."""

    def pre_bind(self, cycle: "PlacementCycle", node: "NodeInfo") -> PreBound:
        """What is left to do; asked again after each change while it says Wait."""
        ...


@runtime_checkable
class BindPlugin(Plugin, Protocol):
    """Who binds the pod: Success lets the binder do it, Skip leaves it to the next plugin."""

    def bind(self, cycle: "PlacementCycle", node: "NodeInfo") -> PluginStatus:
        """The decision."""
        ...


@runtime_checkable
class PostBindPlugin(Plugin, Protocol):
    """What is to be known after a pod is bound."""

    def post_bind(self, cycle: "PlacementCycle", node: "NodeInfo") -> None:
        """The pod is bound."""
        ...


# --- making plugins ------------------------------------------------------------------------------------------------


class PluginFactory(msgspec.Struct, frozen=True):
    """
    How a profile gets a plugin: `build(arguments)`.

    `arguments` is the Struct that `pluginConfig[].args` is read as, `dict` for a plugin that reads them itself, None
    for one without any. The Struct's defaults are those of fields that are left out; `defaulted(arguments)` completes
    what depends on other fields, and `check(arguments, path)` raises ConfigurationError for what is wrong with them.
    """

    name: str
    build: Callable[[Any], Plugin]
    arguments: type[msgspec.Struct] | type[dict[str, Any]] | None = None
    defaulted: Callable[[Any], Any] | None = None
    check: Callable[[Any, str], None] | None = None


class Arguments(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """What the arguments of plugins have in common: camelCase, and unknown fields are errors."""
