"""
Kueue's Configuration and its feature gates.

Owns: reading a Configuration, checking it, and which of Kueue's feature gates are on.
Called by: the command line, which reads documents; every decision that depends on a feature gate.
May import: kubernetes, events.
"""
