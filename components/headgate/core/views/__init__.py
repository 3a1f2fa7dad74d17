"""
Queries on a state or a log.

Owns: the history of a workload, why it is pending, the pending order, topologies as trees and pictures, run metrics.
Called by: the command line, the HTTP read side, the process host, the audit.
May import: queueing, fold, topology, quota, workload, api, state, config, kubernetes, events.
"""
