"""
The Kubernetes adapter: everything Headgate says to an API server, and everything it hears from one.

It is used from the outside in:

* `kubeconfig.resolve` turns flags and environment into a `ClusterAccess`: which server, and how to prove who we are.
* `http_transport.open_transport` turns that into a `Transport`: requests and line streams. A simulated cluster offers
  the same through `transport.InProcessTransport`, without a socket.
* `reflector.Reflector` follows one resource by list and watch and hands what it hears to its owner in bursts.
* `call.CallExecutor` carries out calls that pure code has written down as data, and returns only final outcomes.
* `client.KubeClient` is for code that wants to make a request and look at the answer: set-up, tests, tools.
* `crds` is Kueue's API as CustomResourceDefinitions: what it consists of, and putting it into a cluster.

Objects cross this package as bytes or `msgspec.Raw`. Which part of an object matters is decided by whoever reads it,
so the adapter never builds full models (decoding a pod into one costs a hundred times the partial read).

Nothing here gives up on a failing API server. An operating error (network, 5xx, 429, an expired credential) is retried
with back-off for as long as the process runs, and is visible meanwhile: in counters, in health, in the logs.

Owns: requests, lists, watches and writes to an API server, with their credentials and retries.
Called by: the processes, the commands that read or change a cluster, the simulated world.
May import: core, events.
"""
