"""
The versions of Kueue's API, converted into each other for the API server.

Owns: the conversion of objects between `kueue.x-k8s.io/v1beta1` and v1beta2 in both directions, and ConversionReviews.
Called by: the webhook process; the simulated API server.
May import: topology, api, events.
"""
