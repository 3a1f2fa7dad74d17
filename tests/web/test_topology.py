"""Topologies over HTTP: the tree as data and as a picture, live and at a position."""

from collections.abc import AsyncIterator

import pytest
from tests.support.read_side import ReadSide
from tests.support.topology_cell import GPU, host, reserve, topology_cell

from headgate.testing.memory_log import AsyncMemoryLog, MemoryBlobs, MemoryLog

pytestmark = pytest.mark.anyio


@pytest.fixture
async def side() -> AsyncIterator[ReadSide]:
    """Two hosts, of which the second is used from position 5 on."""
    side = ReadSide()
    history = topology_cell(host("b1", "r1", "h1"), host("b1", "r1", "h2"))
    reserve(history, "train", {"h2": 1})
    memory = MemoryLog("main", now_ms=lambda: 1)
    for entry, logged in zip(history.entries, history.commits, strict=True):
        producer = logged.commit.producer.value
        memory.append(producer, entry.payload, expected_last=memory.last_seq(producer))
    side.view.log, side.view.blobs = AsyncMemoryLog(memory), MemoryBlobs()
    side.view.host.state = history.state  # type: ignore[union-attr,misc]
    async with side.serving():
        yield side


async def test_the_tree_is_that_of_the_command(side: ReadSide) -> None:
    """Amounts by resource; with `resource` of that one only; at a position as it was there."""
    body = await side.get("/topology/gpu")
    assert (body["flavor"], body["resource"], body["resources"][GPU]["free"]) == ("gpu", GPU, "8")
    (block,) = body["domains"]
    (rack,) = block["domains"]
    assert [(each["value"], each["workloads"]) for each in rack["domains"]] == [("h1", {}), ("h2", {"a/train": 1})]
    one = await side.get("/topology/gpu?resource=cpu&at=2")
    assert one["resources"] == {"cpu": {"capacity": "192", "topology_aware": "0", "other": "0", "free": "192"}}


async def test_flavors_with_a_topology_are_listed(side: ReadSide) -> None:
    """With the size of each level and the amounts of the resource that is used most."""
    body = await side.get("/topology")
    (row,) = body["topologies"]
    assert (row["flavor"], row["domains"], row["resource"]) == ("gpu", [1, 1, 2], GPU)
    assert row["amounts"] == {"capacity": "16", "topology_aware": "8", "other": "0", "free": "8"}


async def test_the_picture_is_an_svg_document(side: ReadSide) -> None:
    """Under the same policy as every answer."""
    async with side.session.get(f"{side.url}/topology/gpu?format=svg") as answer:
        assert answer.content_type == "image/svg+xml"
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert (await answer.text()).startswith("<svg ")


@pytest.mark.parametrize(
    ("path", "status", "told"),
    [
        ("/topology/none", 404, "there is no ResourceFlavor 'none'"),
        ("/topology/plain", 404, "has no topology"),
        ("/topology/gpu?resource=fpga", 404, "has the resource 'fpga'"),
        ("/topology/gpu?format=png", 400, "format=png: json or svg"),
    ],
)
async def test_a_wrong_request_is_answered_with_what_there_is(
    side: ReadSide, path: str, status: int, told: str
) -> None:
    """As the command says it."""
    assert told in (await side.get(path, status))["error"]
