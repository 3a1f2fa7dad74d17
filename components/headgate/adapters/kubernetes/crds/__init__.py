"""
The Kueue API as CustomResourceDefinitions.

Owns: Kueue's kinds (`kinds`; `fields` and `rules`, in the language of `schema`), their rendering (`render`), the
    differences between two definitions (`compare`), and the installation of ours (`install`).
Called by: `headgate crds`, `headgate up`, the simulated API server, the generation of `schemas/crds`.
May import: core, events.
"""
