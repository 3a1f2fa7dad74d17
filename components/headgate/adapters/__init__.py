"""The only I/O: JetStream, Kubernetes, telemetry."""
