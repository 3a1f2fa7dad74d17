"""Finding and building the binaries of the control plane: the messages, and what is left unchanged. Needs no binary."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from headgate.testing.control_plane import NoAssetsError, find_assets
from headgate.testing.control_plane import __main__ as command
from headgate.testing.control_plane.assets import BINARIES, KUEUE_CRDS, MODULES, cache_folder, cache_key

NAMES = [binary.name for binary in BINARIES]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder that is empty."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_folder()


def executable(path: Path, text: str = "#!/bin/sh\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Go that builds at once and records its arguments; the file of its records."""
    notes, crds = tmp_path / "notes", tmp_path / "kueue/config/components/crd/bases"
    crds.mkdir(parents=True)
    (crds / "kueue.x-k8s.io_cohorts.yaml").write_text("kind: CustomResourceDefinition\n")
    executable(
        tmp_path / "bin/go",
        textwrap.dedent(f"""\
            #!/bin/sh
            echo "$(basename "$PWD") $*" >>{notes}
            [ "$1" = mod ] && echo '{{"Dir": "{tmp_path}/kueue"}}' && exit
            while [ "$1" != -o ]; do shift; done
            sleep 0.02
            echo "#!/bin/sh" >"$2" && chmod +x "$2"
            """),
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return notes


@pytest.fixture
def no_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No Go anywhere."""
    monkeypatch.setenv("PATH", str(tmp_path))


def test_an_empty_cache_says_what_is_missing_and_how_to_get_it() -> None:
    """One line, for the reason of a skipped test."""
    with pytest.raises(NoAssetsError, match=r"^no control plane: etcd, .* missing in .*; run `make kube`.*$"):
        find_assets()


def test_a_build_fetches_each_binary_from_its_own_module_and_the_crds(go: Path, capsys: pytest.CaptureFixture) -> None:
    """Pinned modules only, and a line for each step."""
    assert command.main(["build"]) == 0
    asked = [line.split() for line in go.read_text().splitlines()]
    assert [(words[0], words[-1]) for words in asked] == [
        *((binary.module, binary.package) for binary in BINARIES),
        ("kueue", "sigs.k8s.io/kueue@v0.19.2"),
    ]
    assert all("-mod=readonly" in words for words in asked if words[1] == "build")
    assets = find_assets()
    assert all(assets.has(name) for name in NAMES)
    assert [path.name for path in assets.kueue_crds().iterdir()] == ["kueue.x-k8s.io_cohorts.yaml"]
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:-1]] == [*NAMES, "Kueue's"]


def test_a_build_does_nothing_when_all_is_there(go: Path) -> None:
    """A second one does not call Go."""
    command.main(["build"])
    before = go.read_text()
    assert command.main(["build"]) == 0
    assert go.read_text() == before


def test_a_build_makes_only_what_is_missing(go: Path, cache: Path) -> None:
    """One that was interrupted continues, and what it left half-done is gone."""
    command.main(["build"])
    go.unlink()
    (cache / "kwok").unlink()
    (cache / "kwok.part").write_text("half of it")
    (cache / f"{KUEUE_CRDS}.part").mkdir()
    assert command.main(["build"]) == 0
    assert [line.split()[0] for line in go.read_text().splitlines()] == ["kwok"]
    assert not list(cache.glob("*.part"))


def test_of_two_builds_at_once_one_waits_and_then_finds_everything(go: Path) -> None:
    """Each binary is built once."""
    args = [sys.executable, "-m", "headgate.testing.control_plane", "build"]
    both = [subprocess.Popen(args, stdout=subprocess.DEVNULL) for _ in range(2)]
    assert [each.wait() for each in both] == [0, 0]
    assert len(go.read_text().splitlines()) == len(NAMES) + 1


def test_a_go_that_fails_ends_the_build(go: Path, capfd: pytest.CaptureFixture) -> None:
    """Its output comes before our message."""
    executable(go.parent / "bin/go", "#!/bin/sh\necho 'no space left on device' >&2\nexit 1\n")
    assert command.main(["build"]) == 1
    first, second = capfd.readouterr().err.splitlines()
    assert first == "no space left on device"
    assert second.startswith("headgate: go build failed in ")


@pytest.mark.usefixtures("no_go")
def test_without_go_a_build_says_in_a_line_what_is_missing_and_skipped(capsys: pytest.CaptureFixture) -> None:
    """And does not fail, for the tests that need it are skipped then."""
    assert command.main(["build"]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert "Go is not on the PATH" in line
    assert "KUBEBUILDER_ASSETS is not set" in line
    assert "skipped" in line


@pytest.mark.parametrize("given", ["run", "demo"])
@pytest.mark.usefixtures("no_go")
def test_what_needs_a_control_plane_fails_without_one(given: str, capsys: pytest.CaptureFixture) -> None:
    """With the same one line, and the exit code of a wrong set-up."""
    assert command.main([given]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "no control plane" in line


def test_a_named_folder_is_used_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Envtest's folders hold no controllers: what is missing is reported, and only its users fail."""
    for name in ("etcd", "kube-apiserver", "kubectl"):
        executable(tmp_path / "envtest" / name)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "envtest"))
    assert command.main(["build"]) == 0
    assert "it has no kube-controller-manager, kwok: the tests that need them are skipped" in capsys.readouterr().out
    assert find_assets().binary("etcd") == tmp_path / "envtest/etcd"
    with pytest.raises(NoAssetsError, match="KUBEBUILDER_ASSETS has no kwok"):
        find_assets().binary("kwok")


def test_a_named_folder_without_an_api_server_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of what is missing is in the message."""
    executable(tmp_path / "envtest/etcd")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "envtest"))
    with pytest.raises(NoAssetsError, match="which has no kube-apiserver, kubectl"):
        find_assets()


def test_a_changed_pin_is_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key follows from the go.mod and go.sum files."""
    before = cache_key()
    for path in MODULES.glob("*/go.*"):
        copy = tmp_path / "modules" / path.relative_to(MODULES)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    monkeypatch.setattr("headgate.testing.control_plane.assets.MODULES", tmp_path / "modules")
    assert cache_key() == before
    with (tmp_path / "modules/kwok/go.sum").open("a") as file:
        file.write("sigs.k8s.io/kwok v0.9.0 h1:...\n")
    assert cache_key() != before
