"""Ports on loopback for the programs of a control plane."""

import random
import socket
from typing import Final

from headgate.testing.control_plane.flags import HOST

_PORTS: Final = range(20_000, 30_000)


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago, below those that the system gives to clients."""
    found: list[int] = []
    while len(found) < count:
        port = random.choice(_PORTS)  # noqa: S311 - no secret
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found
