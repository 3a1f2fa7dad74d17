"""Pictures of topologies: every host is a cell, blocks nest by level, and the bytes are of a sane size."""

from xml.etree import ElementTree as ET

import pytest
from tests.support.topology_cell import GPU, host, reserve, topology_cell

from headgate.core.views.topology import DomainUse, NoTopologyError, topology_view
from headgate.core.views.topology_picture import STEPS, picture, step
from headgate.events import facts

SVG = "{http://www.w3.org/2000/svg}"


def grid(blocks: int, racks: int, hosts: int) -> list[facts.NodeObserved]:
    """So many nodes."""
    return [
        host(f"b{block:02}", f"b{block:02}-r{rack:02}", f"gpu-{block:02}-{rack:02}-{each:02}")
        for block in range(blocks)
        for rack in range(racks)
        for each in range(hosts)
    ]


def titles(svg: str) -> list[str]:
    """The tooltips, in document order."""
    return [each.text or "" for each in ET.fromstring(svg).iter(f"{SVG}title")]


def test_every_host_is_a_cell_with_its_use_and_its_workloads() -> None:
    """Titles of blocks and of cells; the colour of a cell follows from what is occupied."""
    history = topology_cell(*grid(1, 2, 2), host("b00", "b00-r00", "z", unschedulable=True))
    reserve(history, "train", {"gpu-00-00-00": 1})
    svg = picture(topology_view(history.state, "gpu", GPU))
    assert titles(svg) == [
        f"cloud/block b00: of 32 {GPU} 8 used, 0 by other pods, 24 free; 4 nodes",
        f"cloud/rack b00-r00: of 16 {GPU} 8 used, 0 by other pods, 8 free; 2 nodes",
        f"gpu-00-00-00: of 8 {GPU} 8 used, 0 by other pods, 0 free; 1 pod of a/train",
        f"gpu-00-00-01: of 8 {GPU} 0 used, 0 by other pods, 8 free",
        "z is not in the tree: it is cordoned (spec.unschedulable)",
        f"cloud/rack b00-r01: of 16 {GPU} 0 used, 0 by other pods, 16 free; 2 nodes",
        f"gpu-00-01-00: of 8 {GPU} 0 used, 0 by other pods, 8 free",
        f"gpu-00-01-01: of 8 {GPU} 0 used, 0 by other pods, 8 free",
    ]
    fills = [each.get("fill") for each in ET.fromstring(svg).iter(f"{SVG}rect") if each.find(f"{SVG}title") is not None]
    assert fills == [STEPS[-1], STEPS[0], "url(#out)", STEPS[0], STEPS[0]]
    assert "train" not in picture(topology_view(history.state, "gpu"), names=False)


def test_five_thousand_hosts_are_a_file_of_about_a_megabyte() -> None:
    """Each has its own cell and title, inside the picture, and no two cells are at the same place."""
    svg = picture(topology_view(topology_cell(*grid(10, 20, 25)).state, "gpu", GPU))
    root = ET.fromstring(svg)
    width, height = (float(root.get(name) or 0) for name in ("width", "height"))
    cells = [each for each in root.iter(f"{SVG}rect") if each.find(f"{SVG}title") is not None]
    places = {(float(each.get("x") or 0), float(each.get("y") or 0)) for each in cells}
    assert len(places) == len(cells) == 5000
    assert all(0 <= x <= width - 14 and 0 <= y <= height - 14 for x, y in places)
    assert len(svg) < 1_200_000
    assert width < 1600


def test_the_same_view_is_the_same_picture_and_carries_no_markup_of_names() -> None:
    """A label value cannot be markup, and a picture has no style and no script that a policy would block."""
    history = topology_cell(host("b<script>", "r&", 'h"1'))
    view = topology_view(history.state, "gpu")
    assert picture(view) == picture(view)
    assert not {"script", "style"} & {each.tag.removeprefix(SVG) for each in ET.fromstring(picture(view)).iter()}
    assert "style=" not in picture(view)


def test_a_topology_without_nodes_is_a_picture_of_nothing() -> None:
    """With its heading and its legend."""
    assert titles(picture(topology_view(topology_cell().state, "gpu"))) == []


@pytest.mark.parametrize(
    ("share", "place"),
    [
        (DomainUse(8), 0),
        (DomainUse(8, 1), 1),
        (DomainUse(8, 2, 0), 1),
        (DomainUse(8, 2, 2), 2),
        (DomainUse(8, 6), 3),
        (DomainUse(8, 7), 4),
        (DomainUse(8, 8), 5),
        (DomainUse(8, 6, 4), 5),
        (DomainUse(1000, 999), 4),
        (DomainUse(0, 1), 5),
    ],
)
def test_only_what_has_nothing_left_is_full(share: DomainUse, place: int) -> None:
    """Steps of a quarter; the last colour means that no pod fits."""
    assert step(share) == place


def test_an_error_stays_an_error() -> None:
    """There is no picture of a flavor without topology."""
    with pytest.raises(NoTopologyError):
        picture(topology_view(topology_cell().state, "plain"))
