"""The paths of pods in the API server."""

from headgate.events.ids import PodKey, split_key


def pod_path(key: PodKey, subresource: str = "") -> str:
    """The path of a pod, or of its subresource."""
    namespace, name = split_key(key)
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    return f"{path}/{subresource}" if subresource else path
