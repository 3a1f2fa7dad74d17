"""
The audit: whether a log, and its related data on the broker, satisfies the invariants of the design.

Owns: the invariants of a log and of what is stored beside it on the broker, and their checks.
Called by: `headgate audit`; tests and simulations, which check the invariants of every state.
May import: views, queueing, machine, fold, quota, workload, log, api, state, kubernetes, events.
"""
