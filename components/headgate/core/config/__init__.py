"""
Kueue's Configuration and its feature gates: reading a document, and which gates are on.

Used by: The command line reads documents with it; every decision reads gates from it.
May import: kubernetes.
"""
