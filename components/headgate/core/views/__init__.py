"""
Queries on a state or a log.

Owns: the histories of a workload and of a pod, why they are pending, where a pod would go, the pending order,
topologies as trees and pictures, run metrics.
Called by: the command line, the HTTP read side, the process host, the audit.
May import: placement, queueing, fold, topology, quota, workload, api, state, config, kubernetes, events.
"""
