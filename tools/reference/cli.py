"""The page of the command line: every command with its arguments, options, examples and exit codes."""

from typing import Any, Final

from headgate.cli.broker import PANEL
from headgate.cli.main import COMMANDS, load
from tools.reference.text import code, page, safe, table

INTRODUCTION: Final = """
`headgate --help` and `headgate COMMAND --help` show the same in a terminal. `headgate --version` prints the version.

Exit codes of every command: 0 done; 1 the answer is no, or something outside failed; 2 wrong usage or configuration;
3 a broken invariant. A command that gives them a closer meaning says so below. Errors are one line on standard error.
"""


def cli_page() -> str:
    """`docs/reference/cli.md`."""
    panels: dict[str, list[str]] = {}
    broker: list[Any] = []
    for name, entry in COMMANDS.items():
        command = load(name)
        parts = panels.setdefault(entry.panel, [])
        parts.append(_command(name, command, entry.help, 3))
        members = getattr(command, "commands", {})
        parts += [_command(f"{name} {member}", members[member], "", 4) for member in sorted(members)]
        broker = broker or [each for each in command.params if each.rich_help_panel == PANEL]
    sections = [f"## {panel}\n\n" + "\n\n".join(parts) for panel, parts in panels.items()]
    shared = (
        f"## {PANEL}\n\nCommands with `--nats` take these options too. They have precedence over `HEADGATE_NATS_*` and "
        f"the settings file.\n\n{_options(broker)}"
    )
    return page("Command line", INTRODUCTION, *sections, shared)


def _command(name: str, command: Any, summary: str, level: int) -> str:
    parts = [f"{'#' * level} headgate {name} {{ #{name.replace(' ', '-')} }}", safe(command.help or summary)]
    arguments = [each for each in command.params if not each.opts[0].startswith("-")]
    options = [each for each in command.params if each.opts[0].startswith("-") and not each.hidden]
    own = [each for each in options if each.rich_help_panel != PANEL and each.name != "help"]
    if arguments:
        parts.append(
            table(("argument", "meaning"), [(code(each.metavar or each.name), _help(each)) for each in arguments])
        )
    if own:
        parts.append(_options(own))
    if len(own) < len([each for each in options if each.name != "help"]):
        parts.append(f"And the options of [{PANEL.lower()}](#{PANEL.lower().replace(' ', '-')}).")
    if command.epilog:
        parts.append(_epilog(command.epilog))
    return "\n\n".join(parts)


def _options(options: list[Any]) -> str:
    rows = []
    for each in options:
        names = ", ".join(code(option) for option in sorted(each.opts, key=len, reverse=True))
        value = each.metavar or ("" if each.is_flag or each.count else _values(each))
        rows.append((f"{names} {code(value) if value else ''}", _help(each)))
    return table(("option", "meaning"), rows)


def _help(parameter: Any) -> str:
    text = safe(parameter.help or "")
    if parameter.multiple:
        text += " May be given several times."
    if parameter.default not in (None, False, (), [], "") and not callable(parameter.default):
        text += f" Default: {code(getattr(parameter.default, 'value', parameter.default))}."
    if parameter.envvar:
        text += f" Environment: {code(parameter.envvar)}."
    return text


def _values(parameter: Any) -> str:
    annotation = parameter.type_descriptor.annotation
    members = getattr(annotation, "__members__", None)
    if members:
        return "|".join(str(member.value) for member in members.values())
    return {"int": "N", "float": "X", "str": "TEXT", "Path": "FILE"}.get(getattr(annotation, "__name__", ""), "VALUE")


def _epilog(text: str) -> str:
    """Its paragraphs: those that keep their line breaks as code, the others as text."""
    parts = []
    for paragraph in text.strip("\n").split("\n\n"):
        kept = paragraph.startswith("\b\n")
        body = paragraph.removeprefix("\b\n").rstrip()
        title, _, lines = body.partition("\n")
        if kept and title.endswith(":"):
            parts.append(f"{title}\n\n```text\n{_dedented(lines)}\n```")
        elif kept:
            parts.append(f"```text\n{body}\n```")
        else:
            parts.append(safe(body))
    return "\n\n".join(parts)


def _dedented(lines: str) -> str:
    return "\n".join(line.removeprefix("  ") for line in lines.split("\n"))
