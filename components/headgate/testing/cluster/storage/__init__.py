"""
What the simulated API server stores: objects, their metadata and versions, kept on disk if configured.

Used by: the simulated cluster and its controllers.
May import: validation.
"""
