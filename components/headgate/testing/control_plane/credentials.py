"""
Who may talk to the control plane: tokens for the operator and the components, a key for those of service accounts.

All of it is created in each plane's folder and valid only there.
"""

import base64
import os
import secrets
from pathlib import Path
from typing import Final

import msgspec

ADMIN: Final = "admin"
_MASTERS: Final = "system:masters"
_USERS: Final = (ADMIN, "system:kube-controller-manager", "kwok")
"""Users with a token of their own, so that the audit log distinguishes them; all of them may do everything."""

_P256_ORDER: Final = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def token_of(tokens: Path, user: str) -> str:
    """A user's token, from the file that `write_tokens` has written."""
    for line in tokens.read_text().splitlines():
        token, name, *_ = line.split(",")
        if name == user:
            return token
    raise KeyError(user)


def write_tokens(path: Path) -> None:
    """Write kube-apiserver's token file: token, user, uid, group."""
    _write_secret(path, "".join(f"{secrets.token_hex(16)},{user},{user},{_MASTERS}\n" for user in _USERS))


def write_signing_key(path: Path) -> None:
    """
    Write a key for signing service accounts' tokens: P-256, SEC 1 in PEM.

    Such a key is a random number below the curve's order, and the public half may be left out (RFC 5915), so making one
    needs no cryptography of ours.
    """
    number = 1 + secrets.randbelow(_P256_ORDER - 1)
    der = bytes.fromhex("30310201010420") + number.to_bytes(32, "big") + bytes.fromhex("a00a06082a8648ce3d030107")
    body = base64.b64encode(der).decode()
    _write_secret(path, f"-----BEGIN EC PRIVATE KEY-----\n{body}\n-----END EC PRIVATE KEY-----\n")


def write_kubeconfig(path: Path, *, url: str, ca_file: Path, user: str, token: str, namespace: str = "default") -> None:
    """Write a kubeconfig (JSON, which is YAML) for one user, with the context `headgate`."""
    context = {"cluster": "headgate", "user": user, "namespace": namespace}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "headgate", "cluster": {"server": url, "certificate-authority": str(ca_file.resolve())}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "headgate", "context": context}],
        "current-context": "headgate",
    }
    _write_secret(path, msgspec.json.format(msgspec.json.encode(config)).decode() + "\n")


def _write_secret(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
