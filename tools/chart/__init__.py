"""
The Helm chart, made from the Kustomize manifests.

deploy/kubernetes is the one source. This package puts the chart's values in the places that users change, guards what
can be left out, and writes the templates into deploy/helm/headgate. `python -m tools.chart --check` finds templates
that differ from the manifests, and values whose defaults do.

Owns: the generated files of deploy/helm/headgate.
Called by: `make schemas`, which writes them; `make check`.
May import: headgate.
"""
