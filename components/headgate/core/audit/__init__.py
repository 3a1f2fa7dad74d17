"""
The audit: whether a log, and what stands beside it on the broker, keeps what the design promises.

Used by: `headgate audit`; tests and simulations ask the invariants of every state.
May import: everything in `core`.
"""
