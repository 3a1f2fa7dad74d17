"""
What is defaulted in objects and refused of them when they are created or updated, by kind: Kueue's kinds and jobs.

Each rule is one CEL expression with its place in the object (`rules`), in a table of its kind. The webhook evaluates
the tables (`review`), and the same tables are rendered into admission policies (`policies`) and webhook configurations
(`webhooks`), so a cluster is answered alike with either. What CEL cannot say names what answers instead.

Owns: the rules of admission, how they are evaluated, and the objects that tell the API server about them.
Called by: the webhook process, `headgate crds install`, the generated manifests and reference pages.
May import: jobs, api, config, kubernetes, events.
"""
