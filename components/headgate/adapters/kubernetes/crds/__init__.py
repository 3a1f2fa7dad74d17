"""
The Kueue API as CustomResourceDefinitions.

Owns what Kueue's kinds are (`kinds`; `fields` and `rules`, in the language of `schema`), their rendering (`render`),
what differs between two definitions (`compare`), and putting ours into a cluster (`install`). Used by `headgate crds`
and `headgate up`, by the simulated API server, and by the generation of `schemas/crds`.
"""
