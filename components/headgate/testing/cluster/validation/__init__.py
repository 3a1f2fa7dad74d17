"""
What the simulated API server refuses: schemas, CEL rules, the built-in rules of pods and Jobs, admission.

Used by: the simulated cluster's storage.
May import: nothing of the other parts.
"""
