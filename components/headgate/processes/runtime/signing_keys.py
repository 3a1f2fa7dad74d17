"""
The keys that processes sign their commits with, as stored in files.

`<process>.key` holds a process's private seeds, one per line, the newest first; `public.json` the public keys of all
six. `headgate keys` generates them. A process is given its own private file and the public one; the informer bridge
puts the public keys into the log, with which all processes verify. While keys are rotated a process has two of them,
and signs with the newest that is in the log.
"""

import os
from pathlib import Path
from typing import Final

import msgspec

from headgate.core.state.tables import Identity, State
from headgate.events.base import Producer
from headgate.events.identity import CellKeysChanged, Keys, Signing
from headgate.events.signing import Signer, decode_key, encode_key, is_signed_by, signed_here
from headgate.processes.runtime.settings import KeysSettings, SettingsError

PUBLIC: Final = "public.json"
_SEED_BYTES: Final = 32


class UnknownKeyError(Exception):
    """Raised when a process cannot sign in a way that the log accepts. Exit code CONFIGURATION."""


class ProcessKeys:
    """One process's signer, and the configured public keys."""

    def __init__(
        self,
        producer: Producer,
        signer: Signer | None,
        public: Keys,
        *,
        signing: Signing = "required",
        origin: str = "",
    ) -> None:
        self.public = public
        self.signing: Signing = signing if public else "off"
        self._producer = producer
        self._signer = signer
        self._origin = origin

    def sign(self, state: State, payload: bytes) -> bytes:
        """A commit as it is to be appended to this state: signed, unless the log requires no signatures."""
        identity = state.identity
        if self._signer is None or (identity is not None and identity.signing == "off"):
            return payload
        known = self._known(identity)
        signed = self._signer.sign(payload, known)
        signed_here(self._signer.key_for(known), signed)
        return signed

    def vouches(self, payload: bytes) -> bool:
        """Whether an entry of the snapshotter may vouch for a snapshot, by the public keys in the settings."""
        return self.signing == "off" or is_signed_by(self.public[Producer.SNAPSHOTTER.value], payload)

    def check(self, identity: Identity) -> None:
        """Check that the log accepts this process's signatures. Raises UnknownKeyError."""
        if identity.signing == "off":
            return
        name = self._producer.value
        if self._signer is None:
            raise UnknownKeyError(
                f"the log takes signed commits only, and the {name} has no key: name its file in keys.private "
                f"(HEADGATE_KEYS_PRIVATE; `headgate keys generate` makes keys)"
            )
        if not self._signer.key_among(self._known(identity)):
            raise UnknownKeyError(
                f"the log does not know the key of the {name} in {self._origin} ({', '.join(self._signer.public)}); it "
                f"knows {', '.join(self._known(identity)) or 'none'}. Name the file with its private key in "
                f"keys.private; new keys get into the log when the informer bridge starts with them in keys.public"
            )

    def change(self, identity: Identity | None) -> CellKeysChanged | None:
        """The key change that the bridge has to append to a log with this identity; None when there is none."""
        if identity is None or not self.public or self._producer is not Producer.INFORMER_BRIDGE:
            return None
        if self.signing == "off":
            wanted: Keys = {}
        else:
            wanted = self.public
        if (identity.keys, identity.signing) == (wanted, self.signing):
            return None
        return CellKeysChanged(keys=wanted, signing=self.signing, why="the informer bridge was given these")

    def _known(self, identity: Identity | None) -> tuple[str, ...]:
        return identity.keys.get(self._producer.value, ()) if identity is not None else ()


def load(settings: KeysSettings, producer: Producer) -> ProcessKeys:
    """
    The keys that the settings name.

    Raises SettingsError.
    """
    signer = _read_private(settings.private) if settings.private else None
    public = read_public(settings.public) if settings.public else {}
    if signer is not None and public and not signer.key_among(public.get(producer.value, ())):
        raise SettingsError(
            f"keys.private: {settings.private} is not a key that {settings.public} has of the {producer.value}; give "
            f"the process its own file"
        )
    return ProcessKeys(producer, signer, public, signing=settings.signing, origin=settings.private)


def _read_private(path: str) -> Signer:
    try:
        return Signer(_seeds(Path(path)))
    except (OSError, ValueError) as error:
        raise SettingsError(f"keys.private: {path} cannot be used: {_words(error)}") from None


def read_public(path: str | Path) -> Keys:
    """
    The public keys of all processes.

    Raises SettingsError.
    """
    try:
        keys = msgspec.json.decode(Path(path).read_bytes(), type=dict[Producer, tuple[str, ...]])
        for each in keys.values():
            for key in each:
                decode_key(key)
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        raise SettingsError(f"keys.public: {path} cannot be used: {_words(error)}") from None
    missing = [producer.value for producer in Producer if not keys.get(producer)]
    if missing:
        raise SettingsError(f"keys.public: {path} has no key of {', '.join(missing)}")
    return {producer.value: keys[producer] for producer in Producer}


# --- generation ----------------------------------------------------------------------------------------------------


def private_file(folder: Path, name: str) -> Path:
    """Where a process's private seeds are."""
    return folder / f"{name}.key"


def generate(folder: Path) -> Keys:
    """Generate the keys of those processes that have none here; existing ones stay. Returns the public keys."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for producer in Producer:
        file = private_file(folder, producer.value)
        if not file.exists():
            _write(file, encode_key(os.urandom(_SEED_BYTES)) + "\n", 0o600)
    return _publish(folder)


def rotate(folder: Path) -> Keys:
    """Give every process a new key before its existing one. Both are valid until `finish`."""
    for producer in Producer:
        file = private_file(folder, producer.value)
        newest = _seeds(file)[:1]
        _write(file, "".join(f"{encode_key(seed)}\n" for seed in (os.urandom(_SEED_BYTES), *newest)), 0o600)
    return _publish(folder)


def finish(folder: Path) -> Keys:
    """Remove every key but the newest of each process."""
    for producer in Producer:
        file = private_file(folder, producer.value)
        _write(file, encode_key(_seeds(file)[0]) + "\n", 0o600)
    return _publish(folder)


def _seeds(file: Path) -> list[bytes]:
    seeds = [decode_key(line.strip()) for line in file.read_text().splitlines() if line.strip()]
    if not seeds:
        raise ValueError("it holds no key")
    return seeds


def _publish(folder: Path) -> Keys:
    keys = {producer.value: Signer(_seeds(private_file(folder, producer.value))).public for producer in Producer}
    _write(folder / PUBLIC, msgspec.json.format(msgspec.json.encode(keys)).decode() + "\n", 0o644)
    return keys


def _write(file: Path, text: str, mode: int) -> None:
    """Write atomically, and never readable by others in between."""
    partial = file.with_name(file.name + ".partial")
    partial.unlink(missing_ok=True)
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    partial.replace(file)


def _words(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
