"""
Where the binaries of a real control plane are: a folder of the user's, or the cache that `make kube` fills.

`KUBEBUILDER_ASSETS` (the envtest convention) names a folder to use as it is. Without it the binaries are in the user's
cache folder, under a key made of all that decides what is built: the go.mod and go.sum files below `modules/`, the
flags, and the platform. So a changed pin is another folder, and a folder that is complete never has to be looked into.
"""

import hashlib
import os
import platform
from pathlib import Path
from typing import Final

import msgspec

MODULES: Final = Path(__file__).parent / "modules"
"""A Go module for each origin, with its go.mod and go.sum: their dependencies differ."""

KUBERNETES_VERSION: Final = "v1.36.3"
_MAJOR, _MINOR = KUBERNETES_VERSION.removeprefix("v").split(".")[:2]
KUBERNETES_VERSION_FLAGS: Final = (
    f"-X k8s.io/component-base/version.gitVersion={KUBERNETES_VERSION} "
    f"-X k8s.io/component-base/version.gitMajor={_MAJOR} -X k8s.io/component-base/version.gitMinor={_MINOR}"
)
"""Without them the server reports a development version."""

ETCD: Final = "etcd"
API_SERVER: Final = "kube-apiserver"
CONTROLLERS: Final = "kube-controller-manager"
KUBECTL: Final = "kubectl"
KWOK: Final = "kwok"
KUEUE_CRDS: Final = "kueue-crds"
"""The folder of Kueue's own CustomResourceDefinitions, beside the binaries."""

KUEUE_SAMPLES: Final = "kueue-samples"
"""The folder of manifests that were written for Kueue, beside its CustomResourceDefinitions."""


class Binary(msgspec.Struct, frozen=True):
    """What is built: the module below `modules/`, its main package, and the linker's flags."""

    name: str
    module: str
    package: str
    ldflags: str = "-s -w"


BINARIES: Final = (
    Binary(ETCD, "etcd", "go.etcd.io/etcd/server/v3"),
    *(
        Binary(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}", f"-s -w {KUBERNETES_VERSION_FLAGS}")
        for name in (API_SERVER, CONTROLLERS, KUBECTL)
    ),
    Binary(KWOK, "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
)
_NEEDED: Final = (ETCD, API_SERVER, KUBECTL)
"""What envtest's folders have too, and nothing goes without."""


class NoAssetsError(Exception):
    """There is no control plane to start. The message is one line: what is missing and how to get it."""


class Assets(msgspec.Struct, frozen=True):
    """A folder of binaries. `origin` explains in messages why it is this one."""

    folder: Path
    origin: str

    def has(self, name: str) -> bool:
        """Whether a binary is there."""
        return os.access(self.folder / name, os.X_OK)

    def binary(self, name: str) -> Path:
        """The path of a binary. Raises NoAssetsError when it is not there: envtest's folders lack some."""
        if not self.has(name):
            raise NoAssetsError(f"{self.origin} has no {name} ({self.folder}): unset it and run `make kube`")
        return self.folder / name

    def kueue_crds(self) -> Path:
        """
        The folder of Kueue's own CustomResourceDefinitions, one YAML file each.

        Raises NoAssetsError when there are none, neither here nor in the cache.
        """
        return self._kueue(KUEUE_CRDS, "CRDs")

    def kueue_samples(self) -> Path:
        """
        The folder of manifests from Kueue's own repository, YAML files.

        Raises NoAssetsError when there are none, neither here nor in the cache.
        """
        return self._kueue(KUEUE_SAMPLES, "sample manifests")

    def _kueue(self, name: str, what: str) -> Path:
        for folder in (self.folder / name, cache_folder() / name):
            if folder.is_dir():
                return folder
        raise NoAssetsError(f"Kueue's own {what} are not in {cache_folder()}: run `make kube`")


def find_assets() -> Assets:
    """
    The binaries of the control plane, from `KUBEBUILDER_ASSETS` or from the cache.

    Raises NoAssetsError, with one line for people, when there are none or too few.
    """
    named = os.environ.get("KUBEBUILDER_ASSETS")
    if named:
        assets = Assets(Path(named).expanduser(), "KUBEBUILDER_ASSETS")
        missing = [name for name in _NEEDED if not assets.has(name)]
        if missing:
            raise NoAssetsError(f"KUBEBUILDER_ASSETS names {named}, which has no {', '.join(missing)}")
        return assets
    assets = Assets(cache_folder(), "the cache")
    missing = [binary.name for binary in BINARIES if not assets.has(binary.name)]
    if missing:
        raise NoAssetsError(
            f"no control plane: {', '.join(missing)} missing in {assets.folder}; "
            "run `make kube` (needs Go) or set KUBEBUILDER_ASSETS"
        )
    return assets


def caches() -> Path:
    """The user's cache folder for what Go builds for tests."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "headgate"


def folder_of(group: str, name: str, pin: object, module: Path) -> Path:
    """
    Where what is built of a module's folder is, or will be.

    Its name is a digest of all that decides what is built: the pin, the module's files, and the platform.
    """
    digest = hashlib.sha256(repr(pin).encode())
    for path in sorted(module.glob("go.*")):
        digest.update(path.read_bytes() + b"\0")
    digest.update("/".join(go_platform()).encode())
    return caches() / group / f"{name}-{digest.hexdigest()[:16]}"


def cache_folder() -> Path:
    """Where `make kube` puts the binaries of these pins for this platform."""
    return caches() / "control-plane" / cache_key()


def cache_key() -> str:
    """What the cache folder is called: a digest of everything that decides what is built."""
    digest = hashlib.sha256()
    for path in sorted(MODULES.glob("*/go.*")):
        digest.update(f"{path.relative_to(MODULES).as_posix()}\0".encode() + path.read_bytes() + b"\0")
    for binary in BINARIES:
        digest.update(f"{binary.name} {binary.package} {binary.ldflags}\0".encode())
    system, machine = go_platform()
    digest.update(f"{system}/{machine}".encode())
    return f"{KUBERNETES_VERSION}-{system}-{machine}-{digest.hexdigest()[:16]}"


def go_platform() -> tuple[str, str]:
    """GOOS and GOARCH of the machine we run on."""
    machine = platform.machine().lower()
    return platform.system().lower(), {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)
