"""Certificates for tests, made by openssl: an authority, and what it signs."""

import subprocess
from pathlib import Path
from typing import Final

_KEY: Final = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")

_AUTHORITY: Final = """
[ca]
default_ca = here
[here]
database = index.txt
new_certs_dir = .
rand_serial = yes
default_md = sha256
policy = any
[any]
commonName = supplied
"""


def _openssl(*arguments: str, cwd: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=cwd, check=True, capture_output=True, timeout=60)


def make_authority(home: Path, name: str = "ca") -> None:
    """`<name>.key` and `<name>.crt`."""
    out = ("-keyout", f"{name}.key", "-out", f"{name}.crt")
    _openssl("req", "-x509", *_KEY, "-days", "2", *out, "-subj", f"/CN={name}", cwd=home)


def make_certificate(
    home: Path, name: str, *, subject: str, extension: str, authority: str = "ca", expired: bool = False
) -> None:
    """`<name>.key` and `<name>.crt`, signed by the authority; good for two days, or long expired."""
    (home / "ext").write_text(extension)
    _openssl("req", "-new", *_KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject, cwd=home)
    files = ("-in", f"{name}.csr", "-out", f"{name}.crt", "-extfile", "ext")
    if expired:
        # Dates of one's own need the command that keeps a list of what it has signed.
        (home / "index.txt").write_text("")
        (home / "ca.cnf").write_text(_AUTHORITY)
        signing: tuple[str, ...] = (
            "-cert",
            f"{authority}.crt",
            "-keyfile",
            f"{authority}.key",
            "-config",
            "ca.cnf",
            "-batch",
            "-notext",
        )
        dates = ("-startdate", "20200101000000Z", "-enddate", "20200103000000Z")
        _openssl("ca", *signing, *files, *dates, cwd=home)
        return
    signing = ("-CA", f"{authority}.crt", "-CAkey", f"{authority}.key", "-CAcreateserial")
    _openssl("x509", "-req", *signing, *files, "-days", "2", cwd=home)


def make_server_and_client(home: Path, host: str, client: str) -> None:
    """An authority, the certificate `server` for a host name (not 127.0.0.1), and `client` for a user of `headgate`."""
    make_authority(home)
    make_certificate(home, "server", subject=f"/CN={host}", extension=f"subjectAltName=DNS:{host}")
    make_certificate(home, "client", subject=f"/O=headgate/CN={client}", extension="extendedKeyUsage=clientAuth")
