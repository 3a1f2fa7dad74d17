"""
`headgate`: the command line for operators.

Each command is a separate module that is imported on first use, so that `headgate --help` and completion in the shell
are fast. `main` is the entry point: it turns every named error into one line on standard error and an exit code
(`headgate.cli.output`): 0 done, 1 the answer is no, 2 wrong usage or configuration, 3 a broken invariant.
"""

import errno
import importlib
import sys
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from headgate.cli.broker import add_options
from headgate.cli.output import BROKEN, FAILED, OK, WRONG_USAGE, CliError
from headgate.processes.runtime.extensions import ExtensionError, load_integrations


class _Lazy(NamedTuple):
    module: str
    help: str
    panel: str


_RUN, _ASK, _LOG, _KEEP = "Run a cell", "Jobs and queues", "Read the log", "Keep a cell safe"

COMMANDS: Final[dict[str, _Lazy]] = {
    "up": _Lazy("up", "Start everything: broker, simulated cluster, the six processes.", _RUN),
    "demo": _Lazy("demo", "Watch 200 jobs of three teams share a cluster.", _RUN),
    "run": _Lazy("run", "Run one process, or the simulated cluster.", _RUN),
    "apply": _Lazy("objects", "Create or change objects from manifests.", _ASK),
    "get": _Lazy("objects", "Show objects of the cluster.", _ASK),
    "delete": _Lazy("objects", "Delete objects.", _ASK),
    "create": _Lazy("creating", "Create a queue or a flavor from flags.", _ASK),
    "list": _Lazy("listing", "List workloads, the pods of a job, and queues.", _ASK),
    "stop": _Lazy("steering", "Stop a queue or a workload.", _ASK),
    "resume": _Lazy("steering", "Let a queue or a workload go on.", _ASK),
    "keys": _Lazy("keys", "Make and rotate the keys that processes sign their commits with.", _RUN),
    "nats": _Lazy("nats", "Prepare a broker: users, permissions, streams.", _RUN),
    "crds": _Lazy("crds", "Install Kueue's CustomResourceDefinitions, or compare them.", _ASK),
    "import": _Lazy("importing", "Make admitted Workloads of what runs without a queue.", _ASK),
    "takeover": _Lazy("changing_over", "Put Headgate in the place of a stopped Kueue.", _ASK),
    "handback": _Lazy("changing_over", "Put a Kueue back in the place of Headgate.", _ASK),
    "queue": _Lazy("queue", "Show the queues: quota, usage and pending workloads.", _ASK),
    "topology": _Lazy("topology", "Show topologies: capacity and use of racks, hosts and so on.", _ASK),
    "plan": _Lazy("plan", "Show which workloads of manifests would be admitted, without a cluster.", _ASK),
    "place": _Lazy("place", "Show which node pods of manifests would get, and why.", _ASK),
    "explain": _Lazy("explain", "Explain a workload: its history, and why it is in its state.", _ASK),
    "events": _Lazy("events", "Show, follow or export the log's events.", _LOG),
    "state": _Lazy("state", "Show the state at any position or time.", _LOG),
    "replay": _Lazy("replay", "Fold the log again and decide every cycle again.", _LOG),
    "audit": _Lazy("audit", "Check that the log keeps what the design promises.", _LOG),
    "quarantine": _Lazy("quarantine", "Show objects in quarantine after a failure, and retry them.", _ASK),
    "backup": _Lazy("backup", "Back a running cell up, and check a backup.", _KEEP),
    "restore": _Lazy("restore", "Bring a cell back from a backup.", _KEEP),
    "rebuild": _Lazy("rebuild", "Begin a new log from what the API server has.", _KEEP),
    "simulate": _Lazy("simulate", "Run a real cluster's trace under virtual time.", _LOG),
}


class LazyGroup(TyperGroup):
    """
    A group with the names of its commands that imports a command's module only to run it.

    Listing them (help, completion, suggestions) shows stand-ins with the same name and help.
    """

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of the table."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stand-in for listings; None for an unknown name."""
        del ctx
        lazy = COMMANDS.get(cmd_name)
        if lazy is None:
            return None
        return TyperCommand(name=cmd_name, help=lazy.help, rich_help_panel=lazy.panel)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command itself."""
        self.commands = {name: self.get_command(ctx, name) for name in COMMANDS}  # for "did you mean"
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and command is not None:
            command = load(name)
        return name, command, rest


def load(name: str) -> Any:
    """A command, with its module imported."""
    module = importlib.import_module(f"headgate.cli.{COMMANDS[name].module}")
    command = typer.main.get_command(module.app)
    add_options(command)
    members = getattr(command, "commands", {})
    return members.get(name, command)


app = typer.Typer(
    cls=LazyGroup,
    name="headgate",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)


_BEGIN: Final = (
    "Begin with [bold]headgate demo[/bold], or [bold]headgate up[/bold]. Every command has examples in its --help."
)


def _version(wanted: bool) -> None:
    if wanted:
        import importlib.metadata

        typer.echo(f"headgate {importlib.metadata.version('headgate')}")
        raise typer.Exit(OK)


@app.callback(epilog=_BEGIN)
def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    """A job-queueing scheduler for Kubernetes that speaks Kueue's API and keeps everything in one log."""
    del version


def main(args: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    try:
        load_integrations()
    except ExtensionError as error:
        sys.exit(f"headgate: {error}")
    sys.exit(run(sys.argv[1:] if args is None else args))


def run(args: list[str]) -> int:
    """Run the command line; the exit code."""
    command = typer.main.get_command(app)
    try:
        code = command.main(args, prog_name="headgate", standalone_mode=False)
    except typer.Exit as exit_:
        return exit_.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # The reader of our output has closed it (`headgate events | head`).
        sys.stderr.close()
        return OK
    except Exception as error:  # noqa: BLE001 - the last place that can turn an error into words
        return _tell(error)
    return code if isinstance(code, int) else OK


def _tell(error: Exception) -> int:
    """One line for a named error; a traceback for any other, because it is a bug."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    usage = getattr(error, "format_message", None)
    if usage is not None:
        if type(error).__name__ == "NoArgsIsHelpError":
            return WRONG_USAGE
        return _line(f"{usage().rstrip('.')} (see {_asked(error)} --help)", WRONG_USAGE)
    code = _code_of(error)
    if code is None and isinstance(error, OSError) and error.errno in _OUTSIDE:
        where = f"{error.filename}: " if error.filename else ""
        return _line(f"{where}{error.strerror}: {_OUTSIDE[error.errno]}", FAILED)
    if code is None:
        import traceback

        traceback.print_exception(error)
        return _line(f"{type(error).__name__}: {error}: this is a bug in Headgate", BROKEN)
    return _line(str(error), code)


def _asked(error: Exception) -> str:
    context = getattr(error, "ctx", None)
    return str(context.command_path) if context is not None else "headgate"


def _line(text: str, code: int) -> int:
    sys.stderr.write(f"headgate: {' '.join(text.split())}\n")
    return code


_OUTSIDE: Final = {
    errno.ENOSPC: "free some space, then do the same again",
    errno.EDQUOT: "free some space, then do the same again",
    errno.EROFS: "name a directory that can be written",
    errno.EACCES: "name one that you may use, or run as a user with the permission",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files",
}
"""Errors of the operating system, and their remedies. They are no bugs."""

_CODES: Final = {
    "UnknownWorkloadError": WRONG_USAGE,
    "NoTopologyError": WRONG_USAGE,
    "SettingsError": WRONG_USAGE,
    "ConfigurationError": WRONG_USAGE,
    "LogFileError": WRONG_USAGE,
    "BackupError": FAILED,
    "UnreadableCommitError": BROKEN,
    "BrokenLogError": BROKEN,
    "EventFailedError": BROKEN,
    "LogDamaged": BROKEN,
    "KubernetesError": FAILED,
    "LogError": FAILED,
}
"""Errors by name, most special first, so that reporting one does not import the module that defines it."""


def _code_of(error: Exception) -> int | None:
    if isinstance(error, CliError):
        return error.code
    names = [cls.__name__ for cls in type(error).__mro__]
    return next((code for name, code in _CODES.items() if name in names), None)


if __name__ == "__main__":
    main()
