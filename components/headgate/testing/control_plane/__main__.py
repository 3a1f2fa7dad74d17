"""
The control plane by hand: `python -m headgate.testing.control_plane build|operators|run|demo`.

`build` is `make kube`, `operators` is `make operators`, `demo` is `make demo-kube`, `run` leaves one running until
Ctrl-C. The first two end with exit code 0 also where there is nothing to build with, for the tests that need it are
then skipped; the others end with 2.
"""

import argparse
import contextlib
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from headgate.adapters.kubernetes.errors import KubernetesError
from headgate.cli.output import CliError, console
from headgate.cli.supervisor import until_signal
from headgate.testing.control_plane.assets import KUBECTL, NoAssetsError, find_assets
from headgate.testing.control_plane.build import BuildError, build
from headgate.testing.control_plane.component import StartError
from headgate.testing.control_plane.demo import demo
from headgate.testing.control_plane.flags import Options
from headgate.testing.control_plane.kube_scheduler import build_kube_scheduler
from headgate.testing.control_plane.kueue_programs import build_programs
from headgate.testing.control_plane.operators.build import build_operators
from headgate.testing.control_plane.packaging import build_tools
from headgate.testing.control_plane.plane import ControlPlane, ControlPlaneError, control_plane


def main(args: list[str] | None = None) -> int:
    """Run one of the commands; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m headgate.testing.control_plane", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the binaries into the user's cache folder, if they are not there")
    commands.add_parser(
        "operators",
        help="build the operators of job kinds, Kueue's own programs, the kube-scheduler, helm and promtool there too",
    )
    run = commands.add_parser("run", help="a control plane until Ctrl-C")
    run.add_argument("--nodes", type=int, default=1, help="how many nodes to make (default 1)")
    run.add_argument("--folder", type=Path, help="keep everything here; left out, in a temporary folder")
    run.add_argument("--audit", action="store_true", help="write an audit log")
    shown = commands.add_parser("demo", help="the demo of `headgate demo` on a real control plane")
    shown.add_argument("--jobs", type=int, default=200, help="how many jobs (default 200)")
    shown.add_argument("--seed", type=int, default=1, help="which jobs")
    shown.add_argument("--keep", action="store_true", help="leave everything running at the end, until Ctrl-C")
    given = parser.parse_args(args)
    try:
        return _do(given)
    except KeyboardInterrupt:
        return 0
    except Exception as raised:
        error: Exception = raised
        while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:  # of the task groups it came through
            error = error.exceptions[0]
        match error:
            case NoAssetsError():
                code = 0 if given.command in ("build", "operators") else 2
            case CliError():
                code = error.code
            case BuildError() | StartError() | ControlPlaneError() | KubernetesError():
                code = 1
            case _:
                raise
        _say(str(error))
        return code


def _do(given: argparse.Namespace) -> int:
    match given.command:
        case "run":
            anyio.run(_run, given, backend_options={"use_uvloop": True})
        case "demo":
            return int(anyio.run(_demo, given, backend_options={"use_uvloop": True}))
        case "operators":
            build_operators()
            build_tools()
            build_programs()
            build_kube_scheduler()
        case _:
            build()
    return 0


async def _run(given: argparse.Namespace) -> None:
    begun = time.monotonic()
    options = Options(nodes=given.nodes, audit=given.audit)
    async with until_signal(), _in_folder(given.folder, options) as plane:
        out = console()
        out.print(f"the control plane is up after {time.monotonic() - begun:.1f} s; all it has is in {plane.folder}")
        out.print(f"  export KUBECONFIG={plane.kubeconfig}")
        out.print(f"  {plane.assets.binary(KUBECTL)} get nodes")
        out.print("  Ctrl-C takes it down")
        await anyio.sleep_forever()


async def _demo(given: argparse.Namespace) -> bool:
    return await demo(find_assets(), given.jobs, given.seed, keep=given.keep)


@asynccontextmanager
async def _in_folder(folder: Path | None, options: Options) -> AsyncIterator[ControlPlane]:
    """A control plane in a folder of the user's, or in one that ends with it."""
    assets = find_assets()
    with contextlib.ExitStack() as kept:
        where = folder or Path(kept.enter_context(tempfile.TemporaryDirectory(prefix="headgate-control-plane-")))
        async with control_plane(assets, where, options=options) as plane:
            yield plane


def _say(text: str) -> None:
    sys.stderr.write(f"headgate: {text}\n")


if __name__ == "__main__":
    sys.exit(main())
