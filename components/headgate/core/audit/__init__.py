"""
The audit: whether a log, and its related data on the broker, satisfies the invariants of the design.

Used by: `headgate audit`; tests and simulations check the invariants on every state.
May import: everything in `core`.
"""
