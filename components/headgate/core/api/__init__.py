"""
API objects of other authors.

Owns: the kinds of objects and jobs that are read, conversion between API versions, decoding into facts.
Called by: the informer bridge, plans, and everything that addresses objects of the API server.
May import: kubernetes, config, events.
"""
