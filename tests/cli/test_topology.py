"""`headgate topology` on logs written by hand."""

import json
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from tests.support.history import History
from tests.support.topology_cell import GPU, host, reserve, topology_cell

from headgate.adapters.logfile import LogFileWriter
from headgate.events import facts
from headgate.events.base import Producer
from headgate.events.objects import ResourceFlavorSpec

TREE = f"""\
ResourceFlavor gpu, Topology dc (cloud/block / cloud/rack / kubernetes.io/hostname), {GPU} at position 6
DOMAIN       NODES  CAPACITY  TOPOLOGY-AWARE  OTHER  FREE
gpu              4        32              16      4    12  ██████████▒▒░░░░░░░░
├─ b1            3        24              16      4     4  █████████████▒▒▒░░░░
│  ├─ r1         2        16              16      0     0  ████████████████████
│  │  ├─ h1      1         8               8      0     0  ████████████████████  a/train (1)
│  │  └─ h2      1         8               8      0     0  ████████████████████  a/train (1)
│  └─ r2         1         8               0      4     4  ▒▒▒▒▒▒▒▒▒▒░░░░░░░░░░
│     └─ h3      1         8               0      4     4  ▒▒▒▒▒▒▒▒▒▒░░░░░░░░░░
└─ b2            1         8               0      0     8  ░░░░░░░░░░░░░░░░░░░░
   └─ r3         1         8               0      0     8  ░░░░░░░░░░░░░░░░░░░░
      └─ h4      1         8               0      0     8  ░░░░░░░░░░░░░░░░░░░░
█ topology-aware workloads  ▒ other pods  ░ free
not in the tree, because it is cordoned (spec.unschedulable): h5
"""
RACKS = """\
│  ├─ r1      2        16              16      0     0  ████████████████████
│  │  ██
│  └─ r2      1         8               0      4     4  ▒▒▒▒▒▒▒▒▒▒░░░░░░░░░░
│     ▃
"""


def written(path: Path, history: History) -> Path:
    with LogFileWriter(path) as writer:
        writer.write(history.entries)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Four hosts in three racks; one rack is full, one host is used by other pods, and a fifth host is cordoned."""
    history = topology_cell(
        host("b1", "r1", "h1"),
        host("b1", "r1", "h2"),
        host("b1", "r2", "h3"),
        host("b2", "r3", "h4"),
        host("b2", "r3", "h5", unschedulable=True),
    )
    reserve(history, "train", {"h1": 1, "h2": 1})
    history.put(Producer.INFORMER_BRIDGE, facts.NodeUsageObserved(node="h3", requests={GPU: "4"}, pods=1))
    return written(tmp_path / "log.jsonl.gz", history)


def test_the_tree_shows_what_each_domain_has_and_who_uses_it(headgate: Callable, log: Path) -> None:
    """Rows by level with a bar each, and the workloads of each host; without colours where it is no terminal."""
    answer = headgate("topology", "show", "gpu", "--log", log)
    assert (answer.code, answer.out) == (0, TREE)


def test_with_a_level_what_is_below_it_are_cells(headgate: Callable, log: Path) -> None:
    """One for each host in the row below its rack; the scale is told."""
    out = headgate("topology", "show", "gpu", "--level", "cloud/rack", "--log", log).out
    assert RACKS in out
    assert "4 domains of kubernetes.io/hostname are cells: · empty ▂ to 25% ▃ to 50%" in out


def test_many_hosts_are_cells_unless_rows_are_asked_for(headgate: Callable, tmp_path: Path) -> None:
    """Every one of them is shown either way."""
    history = topology_cell(*(host("b1", "r1", f"h{number:03}") for number in range(100)))
    log = written(tmp_path / "many.jsonl.gz", history)
    out = headgate("topology", "show", "gpu", "--resource", GPU, "--log", log).out
    assert out.count("·") == 100 + 1  # and the scale
    assert "--level kubernetes.io/hostname lists them" in out
    rows = headgate("topology", "show", "gpu", "--level", "kubernetes.io/hostname", "--log", log).out
    assert sum("─ h" in line for line in rows.splitlines()) == 100


def test_the_past_is_shown_as_it_was(headgate: Callable, log: Path) -> None:
    """Before the quota was reserved everything was free."""
    before = json.loads(headgate("topology", "show", "gpu", "--at", 2, "-o", "json", "--log", log).out)
    after = json.loads(headgate("topology", "show", "gpu", "-o", "json", "--log", log).out)
    assert (before["position"], before["resources"][GPU]["free"]) == (2, "32")
    assert (after["resource"], after["resources"][GPU]["free"]) == (GPU, "12")
    assert [each["name"] for each in after["left_out"]] == ["h5"]


def test_all_forms_have_the_same_data(headgate: Callable, log: Path) -> None:
    """YAML as JSON; the picture is a document of its own."""
    show = ("topology", "show", "gpu", "--resource", GPU, "--log", log, "-o")
    assert yaml.safe_load(headgate(*show, "yaml").out) == json.loads(headgate(*show, "json").out)
    assert ET.fromstring(headgate(*show, "svg").out).tag.endswith("svg")


def test_flavors_with_a_topology_are_listed(headgate: Callable, tmp_path: Path) -> None:
    """One whose Topology does not exist too, with the problem."""
    history = topology_cell(host("b1", "r1", "h1"))
    lost = facts.ResourceFlavorObserved(name="lost", spec=ResourceFlavorSpec(topology_name="nowhere"))
    history.put(Producer.INFORMER_BRIDGE, lost)
    log = written(tmp_path / "two.jsonl.gz", history)
    title, gpu, row = headgate("topology", "list", "--log", log).out.splitlines()
    assert title.split()[:5] == ["FLAVOR", "TOPOLOGY", "LEVELS", "DOMAINS", "NODES"]
    assert "cloud/block / cloud/rack / kubernetes.io/hostname  1 / 1 / 1" in gpu
    assert row.startswith("lost    nowhere")
    assert "which does not exist" in row
    rows = json.loads(headgate("topology", "list", "--log", log, "-o", "json").out)
    assert [(each["flavor"], each["nodes"]) for each in rows] == [("gpu", 1), ("lost", 0)]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("none",), "there is no ResourceFlavor 'none'"),
        (("plain",), "ResourceFlavor 'plain' has no topology"),
        (("gpu", "--resource", "fpga"), "has the resource 'fpga'; there is cpu,"),
        (("gpu", "--level", "zone"), "Topology dc has no level 'zone'; it has cloud/block,"),
    ],
)
def test_a_wrong_name_is_one_line_and_exit_code_2(
    headgate: Callable, log: Path, arguments: tuple[str, ...], told: str
) -> None:
    """The line says what there is."""
    answer = headgate("topology", "show", *arguments, "--log", log)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert told in answer.err


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_bars_are_coloured_on_a_terminal_only(
    headgate: Callable, log: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], coloured: bool
) -> None:
    """And not where NO_COLOR is set."""
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm-256color", **environment}.items():
        monkeypatch.setenv(name, value)
    out = headgate("topology", "show", "gpu", "--log", log).out
    assert ("\x1b[31m█" in out) == coloured
