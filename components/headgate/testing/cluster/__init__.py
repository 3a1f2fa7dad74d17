"""
A simulated Kubernetes cluster: the API server's semantics in memory, with the controllers that make pods run.

Used in two ways. In-process: `Cluster(clock)` and its synchronous `request` and `watch`, and `step`, driven
by a virtual clock and a seeded `FaultPlan`, for simulations whose failure is a seed. Behind HTTP: `serve(cluster)`,
for kubectl, for the adapters, and as the embedded cluster of `headgate up`, which gives it a `Journal`
(`persistence.py`) so that its objects outlive its process.

Owns: the API server's resources, rules and watches, the controllers, the nodes, the journal on disk.
Called by: the simulated world, the fuzzer, `headgate up` and `headgate run cluster`.
May import: adapters.kubernetes, core, events, processes.runtime.
"""

from headgate.testing.cluster.api.routing import object_path, parse_path
from headgate.testing.cluster.api.watch import Watch
from headgate.testing.cluster.cluster import Cluster, ServerResponse
from headgate.testing.cluster.controllers.controllers import ControllerOptions
from headgate.testing.cluster.errors import ApiStatusError
from headgate.testing.cluster.faults import ConnectionDropped, Fault, FaultPlan, FaultRule
from headgate.testing.cluster.kinds import BY_KIND, BY_PLURAL, KINDS, Column, Kind, kind_of

__all__ = [
    "BY_KIND",
    "BY_PLURAL",
    "KINDS",
    "ApiStatusError",
    "Cluster",
    "Column",
    "ConnectionDropped",
    "ControllerOptions",
    "Fault",
    "FaultPlan",
    "FaultRule",
    "Kind",
    "ServerResponse",
    "Watch",
    "kind_of",
    "object_path",
    "parse_path",
]
