"""
Files of configurations for the log: selected from `--config`, read, and every mistake reported in one line.

`--config` may be given twice: once for the settings of the processes (`headgate.processes.runtime.settings`), once for
the Configuration that decides on admission (`headgate.core.config.reader`). They are distinguished by their apiVersion,
which settings do not have. The informer bridge puts the latter into the log, from where all processes read it; so no
other process accepts one.

The other is the kube-scheduler's KubeSchedulerConfiguration (`--kube-scheduler-config`), by which pods are placed. The
log gets it without `tlsConfig` of its extenders: that may hold keys, and is for the processes that call them.

Without a file a new log gets Kueue's defaults (`KUEUES_DEFAULTS`) from its first event on; an existing log keeps its
configuration.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from headgate.adapters.yaml_text import check_depth
from headgate.core.config.reader import V1BETA2, ConfigurationError, read_configuration, read_document
from headgate.core.placement.configuration.checks import API_VERSION
from headgate.core.placement.configuration.profiles import Registry, read_extenders, read_profiles
from headgate.core.placement.configuration.types import Extender
from headgate.events.configuration import Configuration
from headgate.events.facts import ConfigurationObserved
from headgate.processes.runtime.extensions import load_placement_plugins
from headgate.processes.runtime.settings import SettingsError

KUEUES_DOCUMENT: Final = {"apiVersion": V1BETA2, "kind": "Configuration"}
KUEUES_DEFAULTS: Final = read_configuration(KUEUES_DOCUMENT)
"""The meaning of an empty Configuration of Kueue; for example, pods have half an hour to become ready."""


class ConfigFiles(msgspec.Struct, frozen=True):
    """The files given with `--config`: the file of settings and that of Kueue's Configuration; None: not given."""

    settings: str | None = None
    configuration: str | None = None


def sort_files(paths: Sequence[str]) -> ConfigFiles:
    """
    Sort the files by kind.

    Raises SettingsError when one cannot be read, or when two are of one kind. Settings are read by their own loader.
    """
    found: dict[str, str] = {}
    for path in paths:
        document = _read(Path(path))
        kind = "configuration" if isinstance(document, dict) and "apiVersion" in document else "settings"
        if kind in found:
            what = "Kueue's Configuration" if kind == "configuration" else "settings"
            raise SettingsError(f"--config {path}: {found[kind]} holds {what} already; name one file of them")
        found[kind] = path
    return ConfigFiles(found.get("settings"), found.get("configuration"))


def load_configuration(path: str | Path) -> Configuration:
    """The Configuration of a file, in either API version. Raises SettingsError, whose message is one line."""
    return load_document(path).configuration


def load_document(path: str | Path) -> ConfigurationObserved:
    """As `load_configuration`, with the file itself."""
    document = _read(Path(path))
    if not isinstance(document, dict):
        raise SettingsError(f"{path}: the file must hold a Configuration of config.kueue.x-k8s.io")
    try:
        return read_document(document)
    except ConfigurationError as error:
        raise SettingsError(f"{path}: {error}") from error


NO_PLACEMENT: Final = "none"
"""The name, in place of a file's, by which no pods are placed."""


def load_scheduler_document(path: str | Path) -> dict[str, Any]:
    """
    The KubeSchedulerConfiguration of a file, as the log gets it; {} for `none` and an empty file: no pods are placed.

    Raises SettingsError, whose message is one line.
    """
    document = _scheduler_document(path)
    try:
        if document:
            read_profiles(document, _plugins())
    except ConfigurationError as error:
        raise SettingsError(f"{path}: {error}") from error
    extenders = [_without_tls(each) for each in document.get("extenders") or ()]
    return {**document, "extenders": extenders} if extenders else document


def why_unusable(document: Mapping[str, Any]) -> str:
    """Why this version cannot place pods by a KubeSchedulerConfiguration of the log, with the remedy; "" if it can."""
    try:
        if document:
            read_profiles(document, _plugins())
    except ConfigurationError as error:
        return str(error)
    return ""


def load_extenders(path: str | Path) -> tuple[Extender, ...]:
    """The extenders of such a file with their `tlsConfig`, for the process that calls them. Raises SettingsError."""
    try:
        return read_extenders(_scheduler_document(path))
    except ConfigurationError as error:
        raise SettingsError(f"{path}: {error}") from error


def _scheduler_document(path: str | Path) -> dict[str, Any]:
    document = {} if str(path) == NO_PLACEMENT else _read(Path(path))
    if not isinstance(document, dict):
        raise SettingsError(f"{path}: the file must hold a KubeSchedulerConfiguration of {API_VERSION}")
    return document


@cache
def _plugins() -> Registry:
    """Those that are installed: looked for once, because a file is read again and again."""
    return load_placement_plugins()


def _without_tls(extender: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in extender.items() if name != "tlsConfig"}


def _read(file: Path) -> Any:
    try:
        text = file.read_text()
        check_depth(text)
        documents = [each for each in yaml.safe_load_all(text) if each is not None]
    except FileNotFoundError:
        raise SettingsError(f"{file}: there is no such file; name another") from None
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise SettingsError(f"{file}: this is not YAML: {' '.join(str(error).split())}") from error
    if len(documents) > 1:
        raise SettingsError(f"{file}: it holds {len(documents)} documents; put each into a file of its own")
    return documents[0] if documents else {}
