"""
The simulated cluster as a process of its own: `python -m headgate.testing.cluster.serve`.

`headgate up`, `headgate run cluster` and docker-compose start it. It serves one cluster over HTTP until it is
stopped. Its address is in a line on standard output, in a kubeconfig for kubectl and the processes, and in an address
file for callers that wait for its start. It defaults and refuses objects by Kueue's rules, as with the webhook server.
With --data DIR it keeps its objects in DIR/cluster and continues from them when it is started again, even if it was
killed; without, they are lost when it ends. With --default-scheduler it places pods itself, first fit, as far as they
name the default scheduler; without, that is Headgate's to do.
"""

import argparse
import contextlib
import errno
import os
import secrets
import signal
import sys
from pathlib import Path
from typing import Final, NoReturn

import anyio
import msgspec

from headgate.core.admission.settings import settings_of
from headgate.processes.runtime.configuration_files import KUEUES_DOCUMENT, load_document
from headgate.processes.runtime.settings import SettingsError
from headgate.testing.cluster import Cluster, ControllerOptions
from headgate.testing.cluster.api.server import kubeconfig, serve, wall_clock_ms
from headgate.testing.cluster.storage.persistence import Journal, JournalError, JournalFullError, JournalInUseError

CONTROLLERS: Final = ControllerOptions(first_node=True, events=True)
"""The first pod that waits gets a node to be placed on, and controllers tell users what they did."""
DIRECTORY: Final = "cluster"
"""Where the objects are, below --data."""


def main(args: list[str] | None = None) -> int:
    """
    Serve until SIGTERM or SIGINT.

    Exit code 2 when the address cannot be had or the kept objects cannot be read; 1 when another process has these, or
    there is no room for them: that may be over soon.
    """
    parser = argparse.ArgumentParser(prog="headgate run cluster", description=(__doc__ or "").split("\n\n")[1])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--data", type=Path, help=f"keep the objects here, in {DIRECTORY}/")
    parser.add_argument("--kubeconfig", type=Path, help="write a kubeconfig here")
    parser.add_argument("--address-file", type=Path, help="write the URL here once it is served")
    parser.add_argument("--public-url", help="the URL to write, where clients know the server by another name")
    parser.add_argument("--configuration", type=Path, help="Kueue's Configuration, for its defaults and refusals")
    parser.add_argument("--default-scheduler", action="store_true", help="place the pods of the default scheduler")
    given = parser.parse_args(args)
    try:
        anyio.run(_serve, given, backend_options={"use_uvloop": True})
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            _say(f"{error.filename or given.data}: {error.strerror}; make room for it")
            return 1
        _say(f"cannot serve on {given.host}:{given.port}: {error.strerror or error}")
        return 2
    except SettingsError as error:
        _say(str(error))
        return 2
    except JournalError as error:
        _say(str(error))
        return 1 if isinstance(error, JournalInUseError | JournalFullError) else 2
    return 0


async def _serve(given: argparse.Namespace) -> None:
    with (
        anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals,
        contextlib.ExitStack() as kept,
    ):
        journal = None
        if given.data is not None:
            # A seed of its own: uids must not come again in a cluster whose objects were thrown away.
            journal = Journal(given.data / DIRECTORY, seed=secrets.token_hex(8), log=_say, failed=_stop)
            kept.callback(journal.close)
        file = given.configuration
        admission = settings_of(load_document(file).document if file is not None else KUEUES_DOCUMENT)
        controllers = msgspec.structs.replace(CONTROLLERS, default_scheduler=given.default_scheduler)
        cluster = Cluster(wall_clock_ms, journal=journal, controllers=controllers, admission=admission)
        async with serve(cluster, host=given.host, port=given.port) as bound:
            url = given.public_url or bound
            if given.kubeconfig is not None:
                _write(given.kubeconfig, kubeconfig(url))
            if given.address_file is not None:
                _write(given.address_file, f"{url}\n")
            sys.stdout.write(f"the simulated cluster serves at {url}\n")
            sys.stdout.flush()
            async for _ in signals:
                break


def _say(text: str) -> None:
    sys.stderr.write(f"headgate: {text}\n")
    sys.stderr.flush()


def _stop(error: OSError) -> NoReturn:
    """End at once, without a response: what cannot be persisted must not be acknowledged."""
    _say(f"the cluster ends, for it cannot keep its objects: {error.strerror or error}; make room, then start it again")
    os._exit(1)


def _write(path: Path, text: str) -> None:
    """Written atomically: callers wait for the file to appear."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    part.replace(path)


if __name__ == "__main__":
    sys.exit(main())
