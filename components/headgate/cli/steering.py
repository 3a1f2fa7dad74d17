"""`headgate stop` and `headgate resume`: queues and Workloads, as Kueue's kubectl plugin does it."""

from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from headgate.adapters.kubernetes.client import PatchType
from headgate.cli import completion, options
from headgate.cli.cluster import ClusterObjects
from headgate.cli.objects import FIELD_MANAGER, check_names, with_cluster
from headgate.cli.output import WRONG_USAGE, CliError

app = typer.Typer(add_completion=False)

_STOP = """\b
Examples:
  headgate stop clusterqueue vision                         admit nothing more, and evict what runs
  headgate stop localqueue main -n team-a --keep-already-running
  headgate stop workload job-train-7-4f1c2 -n team-a        evict it, and do not admit it again
"""
_RESUME = """\b
Examples:
  headgate resume clusterqueue vision
  headgate resume workload job-train-7-4f1c2 -n team-a
"""

_Kind = Annotated[
    str, typer.Argument(help="clusterqueue, localqueue or workload.", autocompletion=completion.stoppable)
]
_Name = Annotated[str, typer.Argument(help="Its name.", autocompletion=completion.names)]
_Namespace = Annotated[
    str | None,
    typer.Option("-n", "--namespace", metavar="NS", help="The namespace.", autocompletion=completion.namespaces),
]


@app.command(epilog=_STOP)
def stop(
    kind: _Kind,
    name: _Name,
    namespace: _Namespace = None,
    keep: Annotated[
        bool, typer.Option("--keep-already-running", help="Of a queue: evict nothing that is admitted.")
    ] = False,
    kubeconfig: options.ClusterKubeconfig = None,
    data: options.ClusterData = None,
    cell: options.ClusterCell = None,
) -> None:
    """Stop a queue, so that nothing of it is admitted, or a Workload."""
    _change(kind, name, namespace, (kubeconfig, data, cell), policy="Hold" if keep else "HoldAndDrain", active=False)


@app.command(epilog=_RESUME)
def resume(
    kind: _Kind,
    name: _Name,
    namespace: _Namespace = None,
    kubeconfig: options.ClusterKubeconfig = None,
    data: options.ClusterData = None,
    cell: options.ClusterCell = None,
) -> None:
    """Let a queue admit again, or a Workload be admitted."""
    _change(kind, name, namespace, (kubeconfig, data, cell), policy="None", active=True)


def _change(
    kind: str,
    name: str,
    namespace: str | None,
    where: tuple[str | None, Path | None, str | None],
    *,
    policy: str,
    active: bool,
) -> None:
    check_names(name, namespace or "")

    async def change(objects: ClusterObjects) -> None:
        resource = await objects.by_name(kind)
        match resource.kind:
            case "ClusterQueue" | "LocalQueue":
                spec: dict[str, Any] = {"stopPolicy": policy}
            case "Workload":
                if policy == "Hold":
                    raise CliError(
                        "--keep-already-running is for queues: a Workload stops when it is running", WRONG_USAGE
                    )
                spec = {"active": active}
            case other:
                raise CliError(f"{other}: only a ClusterQueue, a LocalQueue or a Workload can be stopped", WRONG_USAGE)
        within = (namespace or objects.namespace) if resource.namespaced else None
        await objects.client.patch(
            resource, name, {"spec": spec}, within, patch_type=PatchType.MERGE, field_manager=FIELD_MANAGER
        )
        print(f"{resource.kind.lower()}.{resource.group}/{name} {'resumed' if active else 'stopped'}")

    anyio.run(with_cluster, *where, change)
