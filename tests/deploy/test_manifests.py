"""What is shipped in deploy/ fits what the processes and the broker expect."""

import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate.adapters.jetstream.embedded import find_nats_server
from headgate.adapters.jetstream.permissions import ADMIN, PROCESSES
from headgate.cli.main import run
from headgate.core.placement.objects.kinds import KINDS
from headgate.processes.runtime.settings import load

DEPLOY = Path(__file__).parents[2] / "deploy"
NATS = DEPLOY / "kubernetes" / "nats"


def documents(path: Path) -> list[Any]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def test_every_process_gets_the_key_of_its_own_user_and_no_other() -> None:
    """One Secret for each process, and the admin's for the setup alone."""
    kustomization = documents(NATS / "kustomization.yaml")[0]
    secrets = {each["name"]: each["files"] for each in kustomization["secretGenerator"]}
    assert secrets == {f"nats-user-{name}": [f"seed=users/{name}.nk"] for name in (*PROCESSES, ADMIN)}
    mounted = {}
    for each in (*documents(NATS / "users.yaml"), *documents(NATS / "setup.yaml")):
        volumes = each["spec"]["template"]["spec"]["volumes"]
        mounted[each["metadata"]["name"]] = [volume["secret"]["secretName"] for volume in volumes if "secret" in volume]
    assert mounted == {
        **{name: [f"nats-user-{name}"] for name in PROCESSES},
        "nats-setup": [f"nats-user-{ADMIN}"],
    }


def test_every_process_gets_its_own_signing_key_and_all_public_ones() -> None:
    """One Secret for each process; the public keys are one ConfigMap."""
    component = documents(DEPLOY / "kubernetes" / "keys" / "kustomization.yaml")[0]
    secrets = {each["name"]: each["files"] for each in component["secretGenerator"]}
    assert secrets == {f"signing-key-{name}": [f"private=files/{name}.key"] for name in PROCESSES}
    mounted = {}
    for each in documents(DEPLOY / "kubernetes" / "keys" / "keys.yaml"):
        (volume,) = each["spec"]["template"]["spec"]["volumes"]
        mounted[each["metadata"]["name"]] = [
            source[kind]["name"] for source in volume["projected"]["sources"] for kind in source
        ]
    assert mounted == {name: [f"signing-key-{name}", "public-keys"] for name in PROCESSES}


def test_the_keys_stay_out_of_version_control() -> None:
    """They are made beside the manifests that use them."""
    ignored = (DEPLOY.parent / ".gitignore").read_text().splitlines()
    assert {"/deploy/kubernetes/nats/users/", "/deploy/kubernetes/keys/files/"} <= set(ignored)


@pytest.mark.parametrize("overlay", ["base", "nats"])
def test_the_settings_are_settings(overlay: str) -> None:
    """They load, and the read side requires a token: it listens on every address."""
    settings = load(DEPLOY / "kubernetes" / overlay / "headgate.yaml", environ={})
    assert settings.http.authentication == "kubernetes"
    assert bool(settings.nats.nkey_seed_file) == (overlay == "nats")


def test_the_broker_takes_its_configuration(tmp_path: Path) -> None:
    """With the users that `headgate nats users` writes, both in a cluster and under Compose."""
    assert run(["nats", "users", "--out", str(tmp_path)]) == 0
    for source in (NATS / "nats.conf", DEPLOY / "compose-nats.conf"):
        text = source.read_text().replace("users/users.conf", "users.conf").replace("/data", str(tmp_path / "data"))
        (tmp_path / "nats.conf").write_text(text)
        done = subprocess.run(
            [str(find_nats_server()), "--config", str(tmp_path / "nats.conf"), "-t"],
            env={**os.environ, "SERVER_NAME": "nats-0"},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_users_are_made_once_and_their_seeds_are_their_owners_alone(tmp_path: Path) -> None:
    """A second call keeps them; the broker's part holds no seed."""
    out = tmp_path / "users"
    assert run(["nats", "users", "--out", str(out)]) == 0
    before = {path.name: path.read_text() for path in out.iterdir()}
    assert run(["nats", "users", "--out", str(out)]) == 0
    assert {path.name: path.read_text() for path in out.iterdir()} == before
    seeds = [path for path in out.iterdir() if path.suffix == ".nk"]
    assert {path.stem for path in seeds} >= {*PROCESSES, ADMIN}
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in seeds)
    assert not any(path.read_text().strip() in before["users.conf"] for path in seeds)


DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(("answer", "code"), [(DIGEST, 0), ("not found", 1)])
def test_images_are_pinned_to_the_digests_of_the_registry(tmp_path: Path, answer: str, code: int) -> None:
    """The script calls the registry's tool and writes its output, or nothing."""
    shutil.copytree(DEPLOY, tmp_path / "deploy", ignore=shutil.ignore_patterns("users", "files", "demo"))
    tool = tmp_path / "bin" / "crane"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\n[ "$1" = digest ] && echo "{answer}"\n')
    tool.chmod(0o755)
    images = tmp_path / "deploy" / "kubernetes" / "images" / "kustomization.yaml"
    before = images.read_text()
    done = subprocess.run(
        [str(tmp_path / "deploy" / "pin-images"), "registry.example:5000/team/headgate:0.2.0", "nats:2.12-alpine"],
        env={"PATH": f"{tool.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    if code:
        assert images.read_text() == before
        return
    assert documents(images)[0]["images"] == [
        {"name": "headgate", "newName": "registry.example:5000/team/headgate", "digest": DIGEST},
        {"name": "nats", "newName": "nats", "digest": DIGEST},
    ]


def test_the_informer_bridge_may_watch_whatever_placement_reads() -> None:
    """Else its watch fails, and with it every placement."""
    found = documents(DEPLOY / "kubernetes" / "base" / "rbac.yaml")
    roles = {each["metadata"]["name"]: each for each in found if each["kind"] == "ClusterRole"}
    allowed = {
        (group, resource)
        for rule in roles["headgate-informer-bridge"]["rules"]
        if {"list", "watch"} <= set(rule["verbs"])
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert {(kind.group, kind.plural) for kind in KINDS.values()} <= allowed
