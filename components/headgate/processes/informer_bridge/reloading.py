"""
Reloading Kueue's Configuration: its file is read again and again, and a change is passed to the bridge's machine.

The machine appends it as a fact, so the change has a position in the log and every process decides by it from there
on. A file that cannot be read, or that asks for something that Headgate does not have, changes nothing: the operator
is told in the log output and by /readyz, and the configuration in effect stays. So does one that enables other kinds
of jobs, until the next term: which objects are watched is settled when a term begins. Objects that a change has read
otherwise are listed again, and the bridge decides nothing about them before.

A mounted ConfigMap is a file that is replaced; reading it every RELOAD_S seconds costs less than to watch it.
"""

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import anyio
import msgspec

from headgate.core.machine.contract import Changed
from headgate.core.reading.rules import read_otherwise
from headgate.events.configuration import Configuration
from headgate.events.facts import ConfigurationObserved
from headgate.machines.informer_bridge.reconfiguring import CONFIGURATIONS
from headgate.processes.runtime.configuration_files import load_document
from headgate.processes.runtime.leadership import Offer
from headgate.processes.runtime.process_status import Status
from headgate.processes.runtime.settings import SettingsError

_LOG: Final = logging.getLogger(__name__)

RELOAD_S: Final = 2.0
"""How often the file is read."""
_NOTICE: Final = "configuration"


class ConfigurationFile:
    """
    The file of the bridge's configuration.

    `loaded` is what was read from it at the start; `refusal` says why a configuration cannot take effect now, or "".
    """

    def __init__(
        self, path: str, loaded: ConfigurationObserved, status: Status, refusal: Callable[[Configuration], str]
    ) -> None:
        self.current = loaded
        """The last content that could be read."""
        self._path = path
        self._seen: ConfigurationObserved | str = loaded
        """The last content, or why it could not be read."""
        self._status = status
        self._refusal = refusal

    def at_start(self) -> ConfigurationObserved:
        """The configuration for a term that begins: what the file holds now, else the last that could be read."""
        try:
            self.current = load_document(Path(self._path))
        except SettingsError as error:
            self._seen = str(error)
            self._not_in_effect(self._seen)
        else:
            self._seen = self.current
            self._status.notice(_NOTICE, None)
        return self.current

    async def follow(self, offer: Offer, list_again: Callable[[Iterable[str]], None]) -> None:
        """
        Pass changes on, for as long as a term lasts. What is said of the file is said of this term.

        `list_again` is called with the resources of which a new content has other objects, or other labels, read.
        """
        try:
            while True:
                await anyio.sleep(RELOAD_S)
                before, changed = self.current.configuration, self.changed()
                if changed is not None:
                    await offer(changed)
                    list_again(read_otherwise(before, self.current.configuration))
        finally:
            self._status.notice(_NOTICE, None)

    def changed(self) -> Changed | None:
        """The stimulus for a content that is new and can take effect; None otherwise."""
        try:
            found: ConfigurationObserved | str = load_document(Path(self._path))
        except SettingsError as error:
            found = str(error)
        if found == self._seen:
            return None
        self._seen = found
        why = found if isinstance(found, str) else self._refusal(found.configuration)
        if why or isinstance(found, str):
            self._not_in_effect(why)
            return None
        self.current = found
        self._status.notice(_NOTICE, None)
        _LOG.info("the configuration in %s has changed: it is in effect when it is in the log", self._path)
        return Changed(CONFIGURATIONS, "MODIFIED", msgspec.json.encode(found.document), "")

    def _not_in_effect(self, why: str) -> None:
        text = f"the changed configuration is not in effect, the former one stays: {why}"
        _LOG.warning("%s", text)
        self._status.notice(_NOTICE, text)
