"""
Carries out calls of scheduler extenders: the scheduler's, and those of the binder that bind pods.

How an extender is reached is said by the process's own file of the KubeSchedulerConfiguration: the log has no
`tlsConfig`, which may hold keys. A process without a file calls the extenders of the log's configuration, without
anything that a `tlsConfig` would say. Either is read again when the file or the log's configuration has changed; the
calls that are under way then end as they were begun.
"""

from pathlib import Path
from typing import Any, Final

from headgate.adapters.extenders import ExtenderClient
from headgate.core.config.fields import ConfigurationError
from headgate.core.machine.contract import AskExtender, Completed
from headgate.core.placement.configuration.profiles import read_extenders
from headgate.core.placement.configuration.types import Extender
from headgate.core.state.tables import State
from headgate.processes.runtime.configuration_files import NO_PLACEMENT, load_extenders
from headgate.processes.runtime.leadership import NoCarrier
from headgate.processes.runtime.settings import SettingsError

_Source = tuple[Any, ...]
"""What a client was made from: the time and size of the file, or the log's document."""

_NO_FILE: Final = ("", NO_PLACEMENT)


class ExtenderCarrier(NoCarrier):
    """`path` is the file, "" for none. `state` is that of the machine whose calls are carried out."""

    def __init__(self, path: str) -> None:
        """Raises SettingsError when the file, or what it refers to, cannot be used."""
        self.state: State | None = None
        self._path = path
        self._client: ExtenderClient | None = None
        self._source: _Source = ()
        self._former: list[ExtenderClient] = []
        """Clients of former configurations, until no call is under way."""
        self._under_way = 0
        if path:
            try:
                self._current()
            except (ConfigurationError, OSError) as error:
                raise SettingsError(f"{path}: {error}") from error

    async def ask(self, ask: AskExtender) -> Completed:
        """See `Carrier`."""
        try:
            client = self._current()
        except (SettingsError, ConfigurationError, OSError) as error:
            return Completed(ask.id, 0, f'extender "{ask.extender}" cannot be called: {error}'.encode())
        self._under_way += 1
        try:
            return await client.ask(ask)
        finally:
            self._under_way -= 1
            if not self._under_way:
                await self._close_former()

    async def aclose(self) -> None:
        """End all calls."""
        if self._client is not None:
            self._former.append(self._client)
            self._client = None
        await self._close_former()

    async def _close_former(self) -> None:
        while self._former:
            await self._former.pop().aclose()

    def _current(self) -> ExtenderClient:
        """The client for the configuration as it is now."""
        source = self._source_now()
        if self._client is None or source != self._source:
            made = ExtenderClient(self._extenders())
            if self._client is not None:
                self._former.append(self._client)
            self._client, self._source = made, source
        return self._client

    def _source_now(self) -> _Source:
        if self._path not in _NO_FILE:
            stat = Path(self._path).stat()
            return stat.st_mtime_ns, stat.st_size
        return () if self._path else (self._document(),)

    def _extenders(self) -> tuple[Extender, ...]:
        if self._path:
            return load_extenders(self._path)
        return read_extenders(self._document())

    def _document(self) -> dict[str, Any]:
        assert self.state is not None, "a call is made for a machine"
        return self.state.scheduler_configuration
