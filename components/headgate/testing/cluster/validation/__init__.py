"""
What the simulated API server refuses.

Owns: schemas, CEL rules, the built-in rules of pods and Jobs, admission.
Called by: the simulated cluster's storage and controllers.
May import: api, storage, adapters.kubernetes, core.admission, core.kubernetes, core.status.
"""
