"""
The broker options of commands: one set of `--nats-...` options for all, over HEADGATE_NATS_* and the settings file.

`add_options` adds them to every command that has `--nats` (the entry point does it as it loads a command), and
`nats_settings` returns the settings in effect. There is no option for a password or a token itself: other users of the
machine can read command lines. They come from a file, or from the environment.
"""

from contextvars import ContextVar
from typing import Annotated, Any, Final

import typer

PANEL: Final = "How to reach the broker"
PREFIX: Final = "nats_"

_given: ContextVar[dict[str, tuple[str, str]] | None] = ContextVar("nats_options", default=None)


def _note(parameter: typer.CallbackParam, value: str | bool | None) -> str | bool | None:
    # Each is called for each command, given or not: nothing of an earlier command remains.
    key = str(parameter.name).removeprefix(PREFIX)
    given = {known: named for known, named in (_given.get() or {}).items() if known != key}
    if value:
        given[key] = (parameter.opts[0], str(value).lower() if value is True else str(value))
    _given.set(given)
    return value


def _option(flag: str, about: str, metavar: str | None = "FILE") -> Any:
    return typer.Option(flag, metavar=metavar, help=about, rich_help_panel=PANEL, callback=_note)


def _options(
    nats_user: Annotated[str | None, _option("--nats-user", "The user's name.", "NAME")] = None,
    nats_password_file: Annotated[str | None, _option("--nats-password-file", "Its password, in a file.")] = None,
    nats_token_file: Annotated[str | None, _option("--nats-token-file", "A token, in a file.")] = None,
    nats_creds_file: Annotated[str | None, _option("--nats-creds", "A NATS credentials file.")] = None,
    nats_nkey_seed_file: Annotated[str | None, _option("--nats-nkey", "An NKEY seed, in a file.")] = None,
    nats_inbox_prefix: Annotated[
        str | None, _option("--nats-inbox-prefix", "The prefix of the inboxes that the user may subscribe to.", "NAME")
    ] = None,
    nats_tls_required: Annotated[bool, _option("--nats-tls", "Refuse a broker without TLS.", None)] = False,
    nats_tls_ca_file: Annotated[
        str | None, _option("--nats-ca", "The authority that signed the broker's certificate.")
    ] = None,
    nats_tls_cert_file: Annotated[str | None, _option("--nats-cert", "This client's certificate.")] = None,
    nats_tls_key_file: Annotated[str | None, _option("--nats-key", "Its key.")] = None,
    nats_tls_hostname: Annotated[
        str | None, _option("--nats-tls-hostname", "The name to expect in the broker's certificate.", "NAME")
    ] = None,
    nats_js_domain: Annotated[
        str | None, _option("--nats-domain", "The JetStream domain, behind a leaf node.", "NAME")
    ] = None,
) -> None:
    """What `add_options` takes the options from: their names are those of the settings behind `PREFIX`."""


def _made() -> list[Any]:
    app = typer.Typer(add_completion=False)
    app.command()(_options)
    made = [each for each in typer.main.get_command(app).params if str(each.name).startswith(PREFIX)]
    for each in made:
        each.expose_value = False  # the commands themselves do not read them
    return made


def add_options(command: Any) -> None:
    """Give the options to a command that has `--nats`, and to such members of a group."""
    for member in getattr(command, "commands", {}).values():
        add_options(member)
    names = {parameter.name for parameter in command.params}
    if "nats" in names and "nats_user" not in names:
        command.params.extend(_made())


def flags(url: str | None) -> list[Any]:
    """The broker's settings on the command line, for `headgate.processes.runtime.settings.load`."""
    from headgate.processes.runtime.settings import Flag

    found = [Flag(name, ("nats", key), value) for key, (name, value) in (_given.get() or {}).items()]
    return [*([Flag("--nats", ("nats", "url"), url)] if url else []), *found]


def nats_settings(url: str | None) -> tuple[Any, bool]:
    """
    The broker's settings in effect (`NatsSettings`), and whether a broker was configured.

    Raises SettingsError.
    """
    from headgate.processes.runtime.settings import load_all

    loaded = load_all(flags=flags(url))
    return loaded.settings.nats, loaded.names_broker
