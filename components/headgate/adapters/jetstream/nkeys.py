"""
NKEYs: the Ed25519 keys by which NATS identifies its users, as stored in files and requested by servers.

A seed file holds one line, `SU...`; the public key, `U...`, is what a server's configuration names, so a configuration
with NKEYs holds no secret. A credentials file (`.creds`) holds a JWT and a seed. An NKEY is base32 of one prefix byte
(a seed: two), 32 bytes of key, and a CRC-16.
"""

import base64
import binascii
import os
import re
from pathlib import Path

import nats.errors
from nacl.signing import SigningKey

from headgate.adapters.jetstream.errors import BrokerError

_SEED, _USER = 18 << 3, 20 << 3
_KEY_BYTES = 32
_JWT = re.compile(r"-+BEGIN NATS USER JWT-+\s+(\S+)\s+-+END")
_CREDS_SEED = re.compile(r"-+BEGIN USER NKEY SEED-+\s+(\S+)\s+-+END")


class UserKey:
    """A user's key pair. `public` is `U...`; its repr contains nothing else."""

    def __init__(self, raw_seed: bytes) -> None:
        self._key = SigningKey(raw_seed)
        self.public = _encode(bytes([_USER]) + bytes(self._key.verify_key))

    def __repr__(self) -> str:
        return f"UserKey({self.public})"

    @classmethod
    def generate(cls) -> "UserKey":
        """A new one."""
        return cls(os.urandom(_KEY_BYTES))

    @classmethod
    def of_seed(cls, text: str) -> "UserKey":
        """
        The key of a seed, `SU...`.

        :raises ValueError: it is no seed of a user.
        """
        raw = _decode(text.strip())
        if len(raw) != _KEY_BYTES + 2 or raw[0] & 0xF8 != _SEED or ((raw[0] & 7) << 5 | raw[1] >> 3) != _USER:
            raise ValueError("it is not a user's NKEY seed, which begins with SU")
        return cls(raw[2:])

    @property
    def seed(self) -> str:
        """The seed, which is the secret."""
        return _encode(bytes([_SEED | _USER >> 5, (_USER & 31) << 3]) + bytes(self._key))

    def sign(self, nonce: str) -> bytes:
        """The answer to a server's nonce, as CONNECT carries it."""
        return base64.b64encode(self._key.sign(nonce.encode()).signature)


def read_seed_file(path: str) -> UserKey:
    """
    The key of a seed file (`nats.nkey_seed_file`).

    :raises BrokerError: there is none in it.
    """
    try:
        return UserKey.of_seed(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise BrokerError(f"nats.nkey_seed_file: {path} cannot be used: {_words(error)}") from error


def read_creds_file(path: str) -> tuple[str, UserKey]:
    """
    JWT and key of a credentials file (`nats.creds_file`).

    :raises BrokerError: they are not in it.
    """
    try:
        return _parse_creds(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise BrokerError(f"nats.creds_file: {path} cannot be used: {_words(error)}") from error


def _parse_creds(text: str) -> tuple[str, UserKey]:
    jwt, seed = _JWT.search(text), _CREDS_SEED.search(text)
    if jwt is None or seed is None:
        raise ValueError("it is not a NATS credentials file, which holds a user's JWT and NKEY seed")
    return jwt[1], UserKey.of_seed(seed[1])


class NatsCredentials:
    """
    A client's credentials: its public key or JWT, and a signature over the server's nonce.

    The file is read anew for each connection. While it is being replaced it may be unusable: that is an error of the
    attempt (nats-py's own), which is repeated.
    """

    def __init__(self, *, creds_file: str | None, nkey_seed_file: str | None) -> None:
        self._creds_file = creds_file
        self._nkey_seed_file = nkey_seed_file
        self._read()

    @property
    def public_key(self) -> str | None:
        """The public key, for users that a server identifies by it; None for those with a JWT."""
        return self._read()[1].public if self._creds_file is None else None

    def jwt(self) -> bytes:
        """The user's JWT."""
        return self._again()[0].encode()

    def sign(self, nonce: str) -> bytes:
        """The signature over a nonce."""
        return self._again()[1].sign(nonce)

    def _read(self) -> tuple[str, UserKey]:
        if self._creds_file is not None:
            return read_creds_file(self._creds_file)
        assert self._nkey_seed_file is not None, "one of the two files is named"
        return "", read_seed_file(self._nkey_seed_file)

    def _again(self) -> tuple[str, UserKey]:
        try:
            return self._read()
        except BrokerError as error:
            raise nats.errors.Error(str(error)) from error


def _encode(raw: bytes) -> str:
    return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")


def _decode(text: str) -> bytes:
    raw = base64.b32decode(text + "=" * (-len(text) % 8))
    if len(raw) < 3 or binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise ValueError("its checksum is wrong")
    return raw[:-2]


def _words(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
