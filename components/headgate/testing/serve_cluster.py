"""
The simulated cluster as a process of its own: `python -m headgate.testing.serve_cluster`.

`headgate up`, `headgate run cluster` and docker-compose start it. It serves one empty cluster over HTTP until it is
told to stop, and says where: in a line on standard output, in a kubeconfig for kubectl and the processes, and in an
address file for whoever waits for it. Its objects live in its memory and end with it.
"""

import argparse
import signal
import sys
from pathlib import Path

import anyio

from headgate.testing.cluster import Cluster
from headgate.testing.cluster.server import kubeconfig, serve, wall_clock_ms


def main(args: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT. Exit code 2 when the address cannot be had."""
    parser = argparse.ArgumentParser(prog="headgate run cluster", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--kubeconfig", type=Path, help="write a kubeconfig here")
    parser.add_argument("--address-file", type=Path, help="write the URL here once it is served")
    parser.add_argument("--public-url", help="the URL to write, where clients know the server by another name")
    given = parser.parse_args(args)
    try:
        anyio.run(_serve, given, backend_options={"use_uvloop": True})
    except OSError as error:
        sys.stderr.write(f"headgate: cannot serve on {given.host}:{given.port}: {error.strerror or error}\n")
        return 2
    return 0


async def _serve(given: argparse.Namespace) -> None:
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with serve(Cluster(wall_clock_ms), host=given.host, port=given.port) as bound:
            url = given.public_url or bound
            if given.kubeconfig is not None:
                _write(given.kubeconfig, kubeconfig(url))
            if given.address_file is not None:
                _write(given.address_file, f"{url}\n")
            sys.stdout.write(f"the simulated cluster serves at {url}\n")
            sys.stdout.flush()
            async for _ in signals:
                break


def _write(path: Path, text: str) -> None:
    """Whole or not at all: somebody waits for the file to appear."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main())
