"""
The command lines of the control plane's components, its options and its files.

Pure text, so that what is started can be read in one place.
"""

from pathlib import Path
from typing import Final, Self

import msgspec

from headgate.testing.control_plane.assets import API_SERVER, CONTROLLERS, ETCD, KWOK, Assets

HOST: Final = "127.0.0.1"


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """
    What a control plane consists of.

    `controllers` is kube-controller-manager with all its controllers; `kwok` plays the kubelets; so many `nodes` of 4
    CPU are made and waited for (0: make your own). `audit` writes the audit log. The flags go behind ours, so they win.
    """

    controllers: bool = True
    kwok: bool = True
    nodes: int = 1
    audit: bool = False
    apiserver_flags: tuple[str, ...] = ()
    etcd_flags: tuple[str, ...] = ()
    controller_flags: tuple[str, ...] = ()


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """The loopback ports of one control plane."""

    etcd_client: int
    etcd_peer: int
    api_server: int
    controllers: int
    kwok: int


class Files(msgspec.Struct, frozen=True):
    """Where things are in a control plane's folder."""

    folder: Path

    @classmethod
    def of(cls, folder: Path) -> Self:
        """The files below a folder, by absolute paths: kubeconfigs name them."""
        return cls(folder.absolute())

    @property
    def etcd(self) -> Path:
        """Etcd's data."""
        return self.folder / "etcd"

    @property
    def backup(self) -> Path:
        """The last backup of etcd's data."""
        return self.folder / "etcd-backup"

    @property
    def certificates(self) -> Path:
        """Where kube-apiserver makes its certificate, and finds it again."""
        return self.folder / "certificates"

    @property
    def ca(self) -> Path:
        """What clients verify the API server with."""
        return self.certificates / "apiserver.crt"

    @property
    def tokens(self) -> Path:
        """kube-apiserver's token file."""
        return self.folder / "tokens.csv"

    @property
    def signing_key(self) -> Path:
        """The key that service accounts' tokens are signed with."""
        return self.folder / "service-accounts.key"

    @property
    def audit_policy(self) -> Path:
        """What the audit log is to hold."""
        return self.folder / "audit-policy.json"

    @property
    def audit_log(self) -> Path:
        """The audit log."""
        return self.folder / "audit.log"

    @property
    def stages(self) -> Path:
        """Kwok's configuration."""
        return self.folder / "stages.yaml"

    def kubeconfig(self, user: str) -> Path:
        """A user's kubeconfig."""
        return self.folder / f"{user}.kubeconfig"

    def log(self, name: str) -> Path:
        """What a component has printed."""
        return self.folder / f"{name}.log"


def etcd(assets: Assets, files: Files, ports: Ports, options: Options) -> list[str]:
    """etcd, alone, on loopback, without waiting for the disk."""
    client, peer = f"http://{HOST}:{ports.etcd_client}", f"http://{HOST}:{ports.etcd_peer}"
    return [
        str(assets.binary(ETCD)),
        f"--name={ETCD}",
        f"--data-dir={files.etcd}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster={ETCD}={peer}",
        "--unsafe-no-fsync",
        *options.etcd_flags,
    ]


def api_server(assets: Assets, files: Files, ports: Ports, options: Options) -> list[str]:
    """
    kube-apiserver with RBAC, tokens for its users, and tokens for service accounts.

    The admission plugin ServiceAccount is off: pods need no service account, because nothing runs in them.
    """
    audit = (
        # Not rotated: its readers need all of it.
        [
            f"--audit-policy-file={files.audit_policy}",
            f"--audit-log-path={files.audit_log}",
            "--audit-log-maxsize=100000",
        ]
        if options.audit
        else []
    )
    return [
        str(assets.binary(API_SERVER)),
        f"--etcd-servers=http://{HOST}:{ports.etcd_client}",
        f"--bind-address={HOST}",
        f"--secure-port={ports.api_server}",
        # The service `kubernetes` is not used, and its endpoints must not be on loopback.
        f"--advertise-address={HOST}",
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/24",
        f"--cert-dir={files.certificates}",
        f"--token-auth-file={files.tokens}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={files.signing_key}",
        f"--service-account-signing-key-file={files.signing_key}",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
        *audit,
        *options.apiserver_flags,
    ]


def controllers(assets: Assets, files: Files, ports: Ports, options: Options) -> list[str]:
    """kube-controller-manager, all controllers, with its own user."""
    return [
        str(assets.binary(CONTROLLERS)),
        f"--kubeconfig={files.kubeconfig(CONTROLLERS)}",
        f"--bind-address={HOST}",
        f"--secure-port={ports.controllers}",
        f"--cert-dir={files.folder / 'controllers-certificates'}",
        "--leader-elect=false",
        "--use-service-account-credentials=false",
        # A cluster's defaults (20 requests a second, 5 jobs at a time) would be what a test of many jobs measures.
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        "--concurrent-job-syncs=20",
        # The nodes' leases are not renewed, so none of them expires.
        "--node-monitor-grace-period=87600h",
        *options.controller_flags,
    ]


def kwok(assets: Assets, files: Files, ports: Ports) -> list[str]:
    """Kwok for all nodes, with our stages."""
    return [
        str(assets.binary(KWOK)),
        f"--kubeconfig={files.kubeconfig(KWOK)}",
        f"--config={files.stages}",
        "--manage-all-nodes=true",
        "--node-lease-duration-seconds=0",
        f"--server-address={HOST}:{ports.kwok}",
    ]
