"""
What the simulated API server stores.

Owns: objects, their metadata and versions, kept on disk if configured.
Called by: the simulated cluster, its API and its controllers.
May import: api, validation, adapters.kubernetes, core.admission.
"""
