"""
The read side over HTTP: the state at any position, queues, histories, and live events.

It runs in the snapshotter, which reads everything and decides nothing that others wait for.
`headgate.web.routes.add_routes` adds it to that process's HTTP server.

Owns: the HTTP routes, access to them, and streams of events.
Called by: `headgate run snapshotter`, which loads it by name; the generated reference pages.
May import: processes, adapters, machines, core, events.
"""
