"""
Signatures: proof that a commit was appended by its producer.

A signed payload begins with `{"sig":"<signature>",`; the signature is Ed25519 over `{` and everything that follows. So
a signed commit is JSON as before, for every reader, and hashes are over all of its bytes. Keys and signatures are
base64url without padding. Each process has its own seed; the log has the public keys (`cell.founded`,
`cell.keys_changed`), and the fold verifies (`headgate.core.log.refusal`).

A check costs some 45 µs, many times the cost of folding a small commit. `anchored` avoids most of it for batches of
commits: a commit contains the hash of its producer's previous one, so a valid signature covers it too. And a process
does not check its own: `signed_here` notes what it has signed, byte for byte. Whatever else is on its subject is
checked.

PyNaCl (libsodium) verifies in half the time that `cryptography` (OpenSSL) needs.
"""

import base64
import binascii
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

import msgspec
from nacl.bindings import crypto_sign, crypto_sign_BYTES, crypto_sign_open, crypto_sign_seed_keypair
from nacl.exceptions import CryptoError

from headgate.events.base import Producer
from headgate.events.commit import LoggedCommit

_BEGINNING: Final = b'{"sig":"'
_SIGNATURE_CHARS: Final = 86
_REST: Final = len(_BEGINNING) + _SIGNATURE_CHARS + 2
KEY_BYTES: Final = 32
VERIFIED_MAX: Final = 1024
"""How many verification results are kept: those of the anchors of a few batches, and of own commits under way."""


def encode_key(raw: bytes) -> str:
    """A key or signature as text."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode_key(text: str) -> bytes:
    """
    The bytes of a seed or public key.

    Raises ValueError when the text is neither.
    """
    try:
        raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != KEY_BYTES:
        raise ValueError(f"a key is {KEY_BYTES} bytes in base64url, 43 characters")
    return raw


class Signer:
    """
    Signs the commits of one process. It may have several seeds, the newest first, while keys are rotated.

    Its repr contains no seed.
    """

    def __init__(self, seeds: Sequence[bytes]) -> None:
        if not seeds:
            raise ValueError("a signer needs a seed")
        self._secrets = {encode_key(public): secret for public, secret in map(crypto_sign_seed_keypair, seeds)}

    def __repr__(self) -> str:
        return f"Signer({', '.join(self._secrets)})"

    @property
    def public(self) -> tuple[str, ...]:
        """The public keys, the newest first."""
        return tuple(self._secrets)

    def key_among(self, keys: Sequence[str]) -> str:
        """The newest of its keys that is among those; "" when none is."""
        return next((public for public in self._secrets if public in keys), "")

    def key_for(self, keys: Sequence[str]) -> str:
        """The key that signs where those are the valid ones."""
        return self.key_among(keys) or self.public[0]

    def sign(self, payload: bytes, keys: Sequence[str] = ()) -> bytes:
        """An encoded commit with its signature, by the newest key that is among the valid ones."""
        secret = self._secrets[self.key_for(keys)]
        signature = crypto_sign(payload, secret)[:crypto_sign_BYTES]
        return b'%s%s",%s' % (_BEGINNING, encode_key(signature).encode(), payload[1:])


def is_signed_by(keys: Iterable[str], payload: bytes) -> bool:
    """Whether a payload carries a signature of one of these public keys."""
    return any(_holds(key, payload) for key in keys)


_verified: OrderedDict[tuple[str, bytes], bool] = OrderedDict()
"""Whether a key has signed a payload: by the key and the SHA-256 of the payload, the oldest first."""


def _holds(key: str, payload: bytes) -> bool:
    asked = key, sha256(payload).digest()
    holds = _verified.get(asked)
    if holds is None:
        holds = _verify(key, payload)
        _note(asked, holds=holds)
    return holds


def signed_here(key: str, payload: bytes) -> None:
    """Note that this process has signed exactly these bytes with the private key of `key`: it need not check that."""
    _note((key, sha256(payload).digest()), holds=True)


def _note(asked: tuple[str, bytes], *, holds: bool) -> None:
    _verified[asked] = holds
    if len(_verified) > VERIFIED_MAX:
        _verified.popitem(last=False)


def _verify(key: str, payload: bytes) -> bool:
    text = payload[len(_BEGINNING) : len(_BEGINNING) + _SIGNATURE_CHARS]
    if not payload.startswith(_BEGINNING) or payload[_REST - 2 : _REST] != b'",':
        return False
    try:
        signature = base64.b64decode(text + b"==", altchars=b"-_", validate=True)
        if encode_key(signature).encode() != text:
            return False
        crypto_sign_open(signature + b"{" + payload[_REST:], decode_key(key))
    except (CryptoError, ValueError):
        return False
    return True


def anchored(batch: list[LoggedCommit]) -> list[LoggedCommit]:
    """
    The same entries; each commit that a later one of its producer covers has the last of those as its anchor.

    Nothing is verified here: an anchor is verified where it is used.
    """
    if len(batch) < 2:
        return batch
    anchors: dict[Producer, tuple[str, bytes]] = {}
    found = list(batch)
    for index in range(len(batch) - 1, -1, -1):
        logged = batch[index]
        if not logged.payload:
            continue
        producer = logged.commit.producer
        expected, anchor = anchors.get(producer, ("", b""))
        if logged.hash == expected:
            found[index] = msgspec.structs.replace(logged, anchor=anchor)
        else:
            anchor = logged.payload
        anchors[producer] = (logged.commit.prev, anchor)
    return found
