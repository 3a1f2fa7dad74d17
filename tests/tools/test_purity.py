"""The checks of `make check` find each way in which pure code can be impure, in each place where it is to be pure."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
MACHINES = ("informer_bridge", "queue_manager", "scheduler", "binder", "ungater", "snapshotter")
PLACES = {
    "events": "events/planted.py",
    "core": "core/planted.py",
    "a package of core": "core/cycle/planted.py",
    **{name: f"machines/{name}/decide.py" for name in MACHINES},
    "another module of a machine": "machines/binder/planted.py",
}
IMPURE_PLACE = "processes/binder/process.py"

VIOLATIONS = {
    "open": 'open("/etc/hosts")',
    "hash": "hash(text)",
    "hash by a dunder": "text.__hash__()",
    "id": "id(text)",
    "id as a key": "sorted([text], key=id)",
    "print": "print(text)",
    "import by a function": '__import__("time")',
    "eval": "eval(text)",
    "time": "import time",
    "a name of time": "from time import monotonic",
    "clock": "datetime.datetime.now(tz=datetime.UTC)",
    "clock by another name": "moment.utcnow()",
    "random": "import random",
    "secrets": "from secrets import token_hex",
    "uuid": "import uuid",
    "random bytes": "nacl.bindings.randombytes(8)",
    "os": "import os",
    "pathlib": "from pathlib import Path",
    "sockets": "import socket",
    "asyncio": "import asyncio",
    "logging": "import logging",
    "adapters": "from headgate.adapters import log",
    "processes": "from headgate.processes import host",
    "loop over a set": "for each in names: text += each",
    "loop over a frozen set": "for each in frozenset(names): text += each",
    "loop over set or list": "for each in either: text += each",
    "loop over an abstract set": "for each in members: text += each",
    "loop over a difference of keys": "for each in amounts.keys() - names: text += each",
    "list comprehension": "[each for each in names]",
    "dict comprehension": "{each: 1 for each in names}",
    "generator": "next(each for each in names)",
    "list": "list(names)",
    "tuple": "tuple(names)",
    "join": '",".join(names)',
    "iter": "next(iter(names))",
    "pop": "names.pop()",
    "unpacking into a list": "[*names]",
    "unpacking into a call": '"{}{}".format(*names)',
    "enumerate": "dict(enumerate(names))",
    "order of insertion": "dict.fromkeys(names)",
    "extend": "[text].extend(names)",
    "a key with ties": "sorted(names, key=len)",
    "minimum by a key with ties": "min(names, key=len)",
    "text of a set": 'f"{names}"',
    "set given as an iterable": "joined(names)",
}
HARMLESS = {
    "sorted": "list(sorted(names))",
    "any": "any(each for each in names)",
    "set comprehension": "{each.upper() for each in names}",
    "membership": "text in names",
    "length": "len(names)",
    "union": "names | members",
    "insertion": "dict.fromkeys(sorted(names))",
    "loop over a dict": "for each in amounts: text += each",
    "loop over keys": "for each in amounts.keys(): text += each",
    "set given as a set": "lengths(names)",
    "attribute": "holder.id, holder.open()",
    "time from a datum": "datetime.datetime.fromtimestamp(0, datetime.UTC)",
}

HEAD = """
import datetime
from collections.abc import Iterable as Each
from collections.abc import Set as SomeSet
from datetime import datetime as moment

import nacl.bindings


class Holder:
    id = 1

    def open(self) -> None: ...


def joined(parts: Each[str]) -> str:
    return "".join(parts)


def lengths(parts: SomeSet[str]) -> int:
    return len(parts)

"""


def planted() -> str:
    """A piece of code with all violations and all that is harmless, each on a line that ends with its name."""
    lines = [HEAD]
    for number, (name, code) in enumerate({**VIOLATIONS, **HARMLESS}.items()):
        lines += [
            f"def planted_{number}(names: set[str], members: SomeSet[str], either: set[str] | list[str],",
            "    amounts: dict[str, int], text: str, holder: Holder) -> None:",
            f"    {code}  # {name}",
            "",
        ]
    return "\n".join(lines)


def planted_in(path: Path) -> dict[int, str]:
    """The lines of a file that are planted, with their names."""
    found = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        name = line.rpartition("  # ")[2]
        if name in VIOLATIONS or name in HARMLESS:
            found[number] = name
    return found


def commands() -> list[str]:
    """The commands of `make check` that are to find violations of purity."""
    command = ["make", "-n", "check", f"BIN={BIN}", "STAMP="]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [line for line in shown.splitlines() if "/mypy" in line or "pure_code" in line]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[tuple[str, int]]]:
    """A copy of the code with everything planted everywhere, and the places that the commands report."""
    copy = tmp_path_factory.mktemp("planted")
    for name in ("components/headgate", "tools"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    if (ROOT / ".mypy_cache").exists():
        shutil.copytree(ROOT / ".mypy_cache", copy / ".mypy_cache")
    # Nothing is planted in tests; mypy wants the folder that its settings name.
    (copy / "tests").mkdir()
    (copy / "tests" / "nothing.py").touch()
    package = copy / "components" / "headgate"
    for place in (*PLACES.values(), IMPURE_PLACE):
        with (package / place).open("a") as file:
            file.write(planted())
    found = set()
    for command in commands():
        run = subprocess.run(command, cwd=copy, shell=True, capture_output=True, text=True, check=False)
        assert run.returncode == 1, run.stdout + run.stderr
        for line in run.stdout.splitlines():
            found_at = re.match(r"components/headgate/(\S+?\.py):(\d+):.*(refused|may not import|set-order)", line)
            if found_at is not None:
                found.add((found_at[1], int(found_at[2])))
    return package, found


@pytest.mark.timeout(600)
@pytest.mark.parametrize("place", PLACES)
def test_each_violation_is_found_in_each_place(reported: tuple[Path, set[tuple[str, int]]], place: str) -> None:
    """Of all that is planted in a file the violations are reported, line by line, and nothing that is harmless."""
    package, found = reported
    lines = planted_in(package / PLACES[place])
    names = {lines[line] for path, line in found if path == PLACES[place] and line in lines}
    assert sorted(VIOLATIONS.keys() - names) == []
    assert sorted(names - VIOLATIONS.keys()) == []


@pytest.mark.timeout(600)
def test_code_that_does_io_is_not_held_to_purity(reported: tuple[Path, set[tuple[str, int]]]) -> None:
    """The module of a process that runs its machine may read clocks and files."""
    assert not [place for place in reported[1] if place[0] == IMPURE_PLACE]
