"""A command that is cut off from the API server after some of its writes."""

from typing import Any

import pytest

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.errors import TransportError


def cut_off_after(patched: pytest.MonkeyPatch, writes: int) -> None:
    """Let so many writes that are kept through, and no other."""
    left = writes
    make = KubeClient.request

    async def request(client: KubeClient, method: str, path: str, **more: Any) -> bytes:
        nonlocal left
        if method != "GET" and "dryRun" not in more.get("query", {}):
            if not left:
                raise TransportError("connection refused", maybe_applied=False)
            left -= 1
        return await make(client, method, path, **more)

    patched.setattr(KubeClient, "request", request)
