"""The front proxy of an API server: an authority, the client certificate of the aggregator, and the flags for them."""

from pathlib import Path

from tests.support.pki import make_authority, make_certificate

NAME = "front-proxy-client"


def write_front_proxy(folder: Path) -> tuple[str, ...]:
    """Write `ca.crt`, and `NAME.crt` with its key, into a folder; the flags of kube-apiserver that name them."""
    make_authority(folder)
    make_certificate(folder, NAME, subject=f"/CN={NAME}", extension="extendedKeyUsage=clientAuth")
    return (
        f"--requestheader-client-ca-file={folder / 'ca.crt'}",
        f"--requestheader-allowed-names={NAME}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-uid-headers=X-Remote-Uid",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={folder / f'{NAME}.crt'}",
        f"--proxy-client-key-file={folder / f'{NAME}.key'}",
    )
