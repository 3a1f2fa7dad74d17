"""
The scheduling framework: what a plugin is, what it is given and answers, and how the extension points run in order.

Owns: status codes, cluster events and hints, the protocols of plugins, the cycle, the runtime with its caches.
Called by: attempts, the queue, preemption; plugins implement its protocols.
May import: configuration, extenders, core.state, events.
"""
