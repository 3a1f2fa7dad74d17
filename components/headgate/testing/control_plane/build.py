"""
Building the control plane: `make kube`.

Go fetches the pinned modules (their sums are in `modules/*/go.sum`) and builds each binary into the cache folder
(`assets.cache_folder`); Kueue's own CustomResourceDefinitions are copied there from its module. Every file appears
whole, by a rename, and a lock lets a second build that starts meanwhile wait and then find everything there.
"""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from headgate.testing.control_plane.assets import (
    BINARIES,
    KUEUE_CRDS,
    KUEUE_SAMPLES,
    MODULES,
    Assets,
    NoAssetsError,
    cache_folder,
    find_assets,
    go_platform,
)

_KUEUE: Final = "sigs.k8s.io/kueue"
_KUEUE_FILES: Final = {
    KUEUE_CRDS: ("config/components/crd/bases",),
    KUEUE_SAMPLES: ("cmd/kueueviz/examples", "test/performance/e2e"),
}
"""The folders of Kueue's module whose YAML files are copied, by the folder that they are copied to."""


class BuildError(Exception):
    """Go refused. Its own words have gone to standard error already."""


def build() -> Assets:
    """
    Build what is missing, with a line for each step on standard output; nothing when all is there.

    A folder that KUBEBUILDER_ASSETS names is taken as it is. Raises NoAssetsError without Go, BuildError when Go fails.
    """
    if os.environ.get("KUBEBUILDER_ASSETS"):
        assets = find_assets()
        say(f"using KUBEBUILDER_ASSETS={assets.folder}")
        absent = [binary.name for binary in BINARIES if not assets.has(binary.name)]
        if absent:
            say(f"it has no {', '.join(absent)}: the tests that need them are skipped")
        return assets
    folder = cache_folder()
    if not _missing(folder):
        say(f"the control plane is in {folder}")
        return find_assets()
    go = find_go(
        "nothing is built, as KUBEBUILDER_ASSETS is not set, and the tests on a real control plane are skipped"
    )
    with locked(folder):
        begun = time.monotonic()
        missing = _missing(folder)
        say(f"building {', '.join(missing)} into {folder}: minutes with cold caches, once")
        for binary in BINARIES:
            if binary.name in missing:
                with step(f"  {binary.name}"):
                    module = MODULES / binary.module
                    build_package(go, binary.package, module, folder / binary.name, binary.ldflags)
        if missing := [name for name in _KUEUE_FILES if name in missing]:
            with step("  Kueue's CRDs and samples"):
                _fetch_kueue(go, folder, missing)
        say(f"the control plane is in {folder} ({time.monotonic() - begun:.0f} s)")
    return find_assets()


def _missing(folder: Path) -> list[str]:
    assets = Assets(folder, "the cache")
    missing = [binary.name for binary in BINARIES if not assets.has(binary.name)]
    return [*missing, *(name for name in _KUEUE_FILES if not (folder / name).is_dir())]


def find_go(without: str) -> str:
    """The user's Go. Raises NoAssetsError, which says what is the case without it."""
    go = shutil.which("go")
    if go is None:
        raise NoAssetsError(f"Go is not on the PATH: {without}")
    return go


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which is made; the kernel gives it back when we end in whatever way."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "build.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another build is under way; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        for stale in folder.glob("*.part"):  # of a build that was killed
            shutil.rmtree(stale) if stale.is_dir() else stale.unlink()
        yield


@contextmanager
def step(what: str) -> Iterator[None]:
    """A line on standard output, with the time that the block has taken at its end."""
    say(f"{what} ...", end="")
    begun = time.monotonic()
    yield
    say(f" {time.monotonic() - begun:.0f} s")


def build_package(go: str, package: str, module: Path, binary: Path, ldflags: str = "-s -w", *, tags: str = "") -> None:
    """Build a main package from the pins of a module's folder. Raises BuildError when Go fails."""
    part = binary.with_name(f"{binary.name}.part")
    flags = ["-trimpath", "-mod=readonly", "-ldflags", ldflags, *(["-tags", tags] if tags else [])]
    run_go(go, ["build", *flags, "-o", str(part), package], module)
    part.replace(binary)


def _fetch_kueue(go: str, folder: Path, missing: list[str]) -> None:
    module = kueue_module(go)
    for name in missing:
        part = folder / f"{name}.part"
        part.mkdir()
        for source in _KUEUE_FILES[name]:
            for path in sorted((module / source).rglob("*.yaml")):
                shutil.copyfile(path, part / "-".join(path.relative_to(module / source).parts))
        part.replace(folder / name)


def kueue_module(go: str) -> Path:
    """The folder of the pinned Kueue module, read-only, downloaded if need be. Raises BuildError when Go fails."""
    return downloaded(go, _KUEUE, MODULES / "kueue")


def downloaded(go: str, name: str, module: Path) -> Path:
    """The folder of a Go module at the version that a module's folder pins. Raises BuildError when Go fails."""
    lines = (module / "go.mod").read_text().splitlines()
    version = next(line.split("//")[0].split()[-1] for line in lines if f" {name} " in f" {line.strip()} ")
    return Path(json.loads(run_go(go, ["mod", "download", "-json", f"{name}@{version}"], module))["Dir"])


def run_go(go: str, args: list[str], module: Path) -> bytes:
    """Run Go in the folder of a module; what it printed. Its errors go to our standard error. Raises BuildError."""
    system, machine = go_platform()
    # A user's own settings (a workspace, vendoring) must not decide what is built.
    env = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off", "GOFLAGS": "", "GOOS": system, "GOARCH": machine}
    done = subprocess.run([go, *args], cwd=module, env=env, stdout=subprocess.PIPE, check=False)  # noqa: S603 - the user's Go
    if done.returncode != 0:
        raise BuildError(f"go {args[0]} failed in {module} (exit code {done.returncode}); its words are above")
    return done.stdout


def say(text: str, end: str = "\n") -> None:
    """A line, or the begin of one, on standard output."""
    sys.stdout.write(text + end)
    sys.stdout.flush()
