"""
Simulation of whole clusters on recorded traces, under a virtual clock.

Owns: reading a trace, running it, and the report.
Called by: `headgate simulate`.
May import: world, cli, adapters, core, events.
"""
