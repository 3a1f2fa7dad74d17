"""
Reloading configurations: their files are read again and again, and a change is passed to the bridge's machine.

There are two: Kueue's Configuration (`kueues_file`), and the KubeSchedulerConfiguration, by which pods are placed
(`placements_file`).

The machine appends it as a fact, so the change has a position in the log and every process decides by it from there
on. A file that cannot be read, or that asks for something that Headgate does not have, changes nothing: the operator
is told in the log output and by /readyz, and the configuration in effect stays. So does one of Kueue's that enables
other kinds of jobs, until the next term. Objects that a change has read otherwise are listed again, and the bridge
decides nothing about them before.

A mounted ConfigMap is a file that is replaced; reading it every RELOAD_S seconds costs less than to watch it.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import anyio
import msgspec

from headgate.core.machine.contract import Changed
from headgate.events.configuration import Configuration
from headgate.events.facts import ConfigurationObserved
from headgate.machines.informer_bridge.placement_objects import SCHEDULER_CONFIGURATIONS
from headgate.machines.informer_bridge.reconfiguring import CONFIGURATIONS
from headgate.processes.runtime.configuration_files import load_document, load_scheduler_document
from headgate.processes.runtime.leadership import Offer
from headgate.processes.runtime.process_status import Status
from headgate.processes.runtime.settings import SettingsError

_LOG: Final = logging.getLogger(__name__)

RELOAD_S: Final = 2.0
"""How often the file is read."""

Content = TypeVar("Content")


class ConfigurationFile(Generic[Content]):
    """
    A file of a configuration, which is read by `load`. `what` it is appears in messages.

    `shown` is the stimulus by which the machine gets it; `refusal` says why it cannot take effect now, or "".
    """

    def __init__(
        self,
        path: str,
        what: str,
        status: Status,
        *,
        load: Callable[[Path], Content],
        shown: Callable[[Content], Changed],
        refusal: Callable[[Content], str] = lambda _: "",
    ) -> None:
        self.current = load(Path(path))
        """The last content that could be read."""
        self._path = path
        self._what = what
        self._load = load
        self._shown = shown
        self._seen: Content | str = self.current
        """The last content, or why it could not be read."""
        self._status = status
        self._refusal = refusal

    def at_start(self) -> Content:
        """The configuration for a term that begins: what the file holds now, else the last that could be read."""
        try:
            self.current = self._load(Path(self._path))
        except SettingsError as error:
            self._seen = str(error)
            self._not_in_effect(self._seen)
        else:
            self._seen = self.current
            self._status.notice(self._what, None)
        return self.current

    async def follow(self, offer: Offer, taken: Callable[[Content, Content], None]) -> None:
        """
        Pass changes on, for as long as a term lasts. What is said of the file is said of this term.

        `taken` is called with the former content and the new one, after the machine was given it.
        """
        try:
            while True:
                await anyio.sleep(RELOAD_S)
                before, changed = self.current, self.changed()
                if changed is not None:
                    await offer(changed)
                    taken(before, self.current)
        finally:
            self._status.notice(self._what, None)

    def changed(self) -> Changed | None:
        """The stimulus for a content that is new and can take effect; None otherwise."""
        try:
            found = self._load(Path(self._path))
        except SettingsError as error:
            self._refuse(str(error))
            return None
        if found == self._seen:
            return None
        why = self._refusal(found)
        if why:
            self._seen = found
            self._not_in_effect(why)
            return None
        self._seen = self.current = found
        self._status.notice(self._what, None)
        _LOG.info("the %s in %s has changed: it is in effect when it is in the log", self._what, self._path)
        return self._shown(found)

    def _refuse(self, why: str) -> None:
        if why != self._seen:
            self._seen = why
            self._not_in_effect(why)

    def _not_in_effect(self, why: str) -> None:
        text = f"the changed {self._what} is not in effect, the former one stays: {why}"
        _LOG.warning("%s", text)
        self._status.notice(self._what, text)


def kueues_file(
    path: str, status: Status, refusal: Callable[[Configuration], str]
) -> ConfigurationFile[ConfigurationObserved]:
    """The file of Kueue's Configuration. Raises SettingsError for a mistake in it."""
    return ConfigurationFile(
        path,
        "configuration",
        status,
        load=load_document,
        shown=lambda found: Changed(CONFIGURATIONS, "MODIFIED", msgspec.json.encode(found.document), ""),
        refusal=lambda found: refusal(found.configuration),
    )


def placements_file(path: str, status: Status) -> ConfigurationFile[dict[str, Any]]:
    """The file by which pods are placed. Raises SettingsError for a mistake in it."""
    return ConfigurationFile(path, "KubeSchedulerConfiguration", status, load=load_scheduler_document, shown=_placing)


def _placing(document: Mapping[str, Any]) -> Changed:
    return Changed(SCHEDULER_CONFIGURATIONS, "MODIFIED", msgspec.json.encode(document), "")
