"""
Adapters: all code that does I/O with systems outside: NATS JetStream, the Kubernetes API server, telemetry, files.

Owns: connections to NATS JetStream and to the API server, logs, metrics and traces, log files on disk.
Called by: the processes, the command line, the read side, the simulated world.
May import: core, events.
"""
