"""
The admission webhooks of Headgate as a process: `headgate run webhook`, in as many replicas as wanted.

It reads no log and needs no broker: what it answers depends on the object, Kueue's Configuration and a few small facts
of the cluster that an informer keeps (`facts`), so replicas need no leader and answer while the broker is down. The
rules are `headgate.core.admission`; `handlers` names the handler of each path, `server` speaks HTTPS.

Owns: the webhook server and its certificate, and the objects that tell the API server about it.
Called by: `headgate run webhook`, `headgate crds install --admission webhook`.
May import: runtime, adapters, core, events.
"""
