"""
The Kueue API as CustomResourceDefinitions.

Owns: Kueue's kinds (`kinds`; `fields`, `rules` and `descriptions`, in the language of `schema`), their rendering
    (`render`), the differences between two definitions (`compare`), the installation of ours (`install`), and the
    migration of stored objects (`migrate`).
Called by: `headgate crds`, `headgate up`, the simulated API server, the generation of `schemas/crds`.
May import: core, events.
"""
