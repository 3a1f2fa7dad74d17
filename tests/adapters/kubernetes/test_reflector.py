"""List and watch against a server that does everything wrong at least once."""

import json
import logging
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import anyio
import msgspec
import pytest

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.messages import Bookmark, Changes, ListPage, WatchResumed
from headgate.adapters.kubernetes.reflector import Reflector, ReflectorSettings
from headgate.adapters.kubernetes.resources import PODS
from headgate.adapters.kubernetes.transport import InProcessTransport

pytestmark = pytest.mark.anyio


class Owner:
    """Receives a reflector's messages, one expectation at a time; that a watch was resumed is kept apart."""

    def __init__(self, source, reflector):
        self.source = source
        self.reflector = reflector
        self.resumed = []

    async def message(self):
        with anyio.fail_after(10):
            while isinstance(message := await self.source.receive(), WatchResumed):
                self.resumed.append(message.resource_version)
            return message

    async def changes(self, count):
        """The next changes as (type, name, version), however they are cut into bursts."""
        found: list[Any] = []
        while len(found) < count:
            message = await self.message()
            assert isinstance(message, Changes), message
            found += [(change.type.value, change.meta.name, int(change.resource_version)) for change in message.changes]
        assert len(found) == count
        return found

    async def settled(self):
        """No message is left and none follows."""
        await anyio.wait_all_tasks_blocked()
        said = []
        while self.source.statistics().current_buffer_used:
            said.append(self.source.receive_nowait())
        self.resumed += [message.resource_version for message in said if isinstance(message, WatchResumed)]
        assert [message for message in said if not isinstance(message, WatchResumed)] == []


@asynccontextmanager
async def following(transport, sleeps, *, resource=PODS, resume_rv="", buffer=16, settings=None, **options):
    reflector = Reflector(
        KubeClient(transport),
        resource,
        settings=settings or ReflectorSettings(short_watch_s=0, verify_resume=False),
        random=Random(1),
        sleep=sleeps,
        **options,
    )
    sink, source = anyio.create_memory_object_stream[Any](buffer)

    async def run():
        await reflector.run(sink, resume_rv=resume_rv)

    async with sink, source, anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        yield Owner(source, reflector)
        tasks.cancel_scope.cancel()


def names(listed):
    return [msgspec.json.decode(item)["metadata"]["name"] for item in listed.items]


async def test_lists_in_pages_then_watches_from_the_version_of_the_list(fake, transport, sleeps, make):
    """The first page begins, the last completes; the watch starts at the version of the list."""
    fake.script = [
        fake.answer(200, make.page(make.pod("a", 1), make.pod("b", 2), version=10, token="t")),
        fake.answer(200, make.page(make.pod("c", 3), version=10)),
        fake.lines(make.event("ADDED", "d", 11), make.event("MODIFIED", "a", 12), end="hang"),
    ]
    options = {"settings": ReflectorSettings(page_items=2), "selectors": {"labelSelector": "x"}}
    async with following(transport, sleeps, **options) as owner:
        first, second = await owner.message(), await owner.message()
        assert [(names(page), page.page, page.complete) for page in (first, second)] == [
            (["a", "b"], 0, False),
            (["c"], 1, True),
        ]
        assert first.resource_version == second.resource_version == "10"
        assert await owner.changes(2) == [("ADDED", "d", 11), ("MODIFIED", "a", 12)]
        assert owner.reflector.synced
        assert owner.reflector.resource_version == "12"
    lists, watch = fake.seen[:2], fake.seen[2]
    assert [seen.query for seen in lists] == [
        {"labelSelector": "x", "limit": "2"},
        {"labelSelector": "x", "limit": "2", "continue": "t"},
    ]
    timeout = int(watch.query.pop("timeoutSeconds"))
    assert 290 <= timeout <= 310
    assert watch.query == {
        "labelSelector": "x",
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "10",
    }


async def test_a_stored_version_spares_the_list(fake, transport, sleeps, make):
    """After a restart the watch continues from what the owner has processed."""
    fake.script = [fake.lines(make.event("DELETED", "a", 43), end="hang")]
    async with following(transport, sleeps, resume_rv="42") as owner:
        assert await owner.changes(1) == [("DELETED", "a", 43)]
        assert owner.resumed == ["42"]
    assert fake.seen[0].query["resourceVersion"] == "42"
    assert owner.reflector.counters.lists == 0


async def test_an_expired_version_leads_to_a_list(fake, transport, sleeps, make, caplog):
    """410, as an HTTP answer or as an event, means that changes may be lost: list again, at once the first time."""
    gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}}
    fake.script = [
        fake.status(410, "Gone"),
        fake.answer(200, make.page(make.pod("a", 1), version=50)),
        fake.lines(make.event("ADDED", "b", 51), gone),
        fake.answer(200, make.page(version=60)),
        fake.lines(end="hang"),
    ]
    with caplog.at_level(logging.INFO):
        async with following(transport, sleeps, resume_rv="42") as owner:
            assert names(await owner.message()) == ["a"]
            assert await owner.changes(1) == [("ADDED", "b", 51)]
            assert names(await owner.message()) == []
    assert owner.reflector.counters.expired == 2
    assert owner.reflector.counters.failures == 0
    assert sleeps == []
    assert [text for text in caplog.messages if "expired" in text] == [
        "pods: version 42 has expired; listing again",
        "pods: version 51 has expired; listing again",
    ]


async def test_a_server_that_forgets_at_once_is_not_hammered(fake, transport, sleeps, make):
    """List, 410, list, 410: from the second time on there is a growing pause."""
    rounds = 4
    for number in range(rounds):
        fake.script += [fake.answer(200, make.page(version=number + 1)), fake.status(410, "Expired")]
    async with following(transport, sleeps, settings=ReflectorSettings(backoff_first_s=1)) as owner:
        for _ in range(rounds):
            assert isinstance(await owner.message(), ListPage)
        await owner.settled()
    assert len(sleeps) == rounds - 1
    assert all(lower < higher for lower, higher in zip(sleeps, sleeps[2:], strict=False))


async def test_a_list_that_expires_on_the_way_begins_again_and_is_at_last_asked_for_whole(
    fake, transport, sleeps, make
):
    """A continue token that is too old starts page 0 again; after two of those there are no pages any more."""
    for _ in range(2):
        fake.script += [
            fake.answer(200, make.page(make.pod("a", 1), version=5, token="t")),
            fake.status(410, "Expired"),
        ]
    fake.script += [fake.answer(200, make.page(make.pod("a", 1), make.pod("b", 2), version=6)), fake.lines(end="hang")]
    async with following(transport, sleeps) as owner:
        pages = [await owner.message() for _ in range(3)]
        await owner.settled()
    assert [(page.page, page.complete) for page in pages] == [(0, False), (0, False), (0, True)]
    assert [seen.query.get("limit") for seen in fake.seen[:5]] == ["500", "500", "500", "500", None]


async def test_a_list_that_breaks_on_the_way_begins_again(fake, transport, sleeps, make):
    """The pages of a broken list prove nothing; the version of the first page is never watched from."""
    fake.script = [
        fake.answer(200, make.page(make.pod("a", 1), version=5, token="t")),
        fake.status(500, "InternalError"),
        fake.answer(200, make.page(version=6)),
        fake.lines(end="hang"),
    ]
    settings = ReflectorSettings(short_watch_s=0, verify_resume=False, page_tries_max=1)
    async with following(transport, sleeps, settings=settings) as owner:
        pages = [await owner.message() for _ in range(2)]
        await owner.settled()
        assert owner.reflector.resource_version == "6"
    assert [(page.page, page.complete) for page in pages] == [(0, False), (0, True)]
    assert fake.seen[3].query["resourceVersion"] == "6"


@pytest.mark.parametrize("end", ["well", "reset"])
async def test_a_stream_cut_inside_a_line_resumes_after_the_last_whole_one(fake, transport, sleeps, make, end, caplog):
    """Nothing is missed and nothing repeated; one warning line has the cause and the consequence."""
    half = json.dumps(make.event("ADDED", "b", 12)).encode()[:40]
    whole = json.dumps(make.event("ADDED", "a", 11)).encode() + b"\n"
    fake.script = [
        fake.chunks(whole, half, end=end),
        fake.lines(make.event("ADDED", "b", 12), end="hang"),
    ]
    with caplog.at_level(logging.WARNING):
        async with following(transport, sleeps, resume_rv="10") as owner:
            assert await owner.changes(2) == [("ADDED", "a", 11), ("ADDED", "b", 12)]
    assert [seen.query["resourceVersion"] for seen in fake.seen] == ["10", "11"]
    assert (len(sleeps), owner.reflector.counters.failures) == (1, 1)
    [line] = caplog.messages
    assert line.startswith("pods: ")
    assert "watching again from 11 in" in line


async def test_a_line_that_does_not_decode_ends_the_watch_and_not_the_reflector(fake, transport, sleeps, make, caplog):
    """After such a line nothing on the stream can be trusted; the watch is repeated from the last good version."""
    good = json.dumps(make.event("ADDED", "a", 11)).encode() + b"\n"
    fake.script = [
        fake.chunks(good + b"{garbage\n" + good),
        fake.lines(make.event("ADDED", "b", 12), end="hang"),
    ]
    with caplog.at_level(logging.WARNING):
        async with following(transport, sleeps, resume_rv="10") as owner:
            assert await owner.changes(2) == [("ADDED", "a", 11), ("ADDED", "b", 12)]
    assert fake.seen[1].query["resourceVersion"] == "11"
    assert owner.reflector.counters.undecodable_lines == 1
    assert "{garbage" in caplog.text


@pytest.mark.parametrize(
    "strange",
    [
        {"type": "ADDED", "object": {"metadata": {"name": "x"}}},
        {"type": "ADDED", "object": {"metadata": {"name": 7, "resourceVersion": "12"}}},
        {"type": "ADDED", "object": "text"},
        {"type": "RENAMED", "object": {"metadata": {"name": "x", "resourceVersion": "12"}}},
    ],
)
async def test_an_unreadable_object_is_reported_and_passed_over(fake, transport, sleeps, make, strange):
    """One bad object does not hide the ones around it, and it is reported."""
    fake.script = [fake.lines(make.event("ADDED", "a", 11), strange, make.event("ADDED", "b", 13), end="hang")]
    reported = []
    options = {"on_undecodable": lambda resource, found, error: reported.append((resource, json.loads(found), error))}
    async with following(transport, sleeps, resume_rv="10", **options) as owner:
        assert await owner.changes(2) == [("ADDED", "a", 11), ("ADDED", "b", 13)]
    [(resource, found, _)] = reported
    assert (resource, found) == (PODS, strange["object"])
    assert owner.reflector.counters.undecodable_objects == 1
    assert sleeps == []


async def test_bookmarks_advance_the_version(fake, transport, sleeps, make):
    """After a quiet time the watch resumes from the bookmark, not from the last change."""
    fake.script = [
        fake.lines(make.event("ADDED", "a", 11), make.bookmark(500)),
        fake.lines(end="hang"),
    ]
    async with following(transport, sleeps, resume_rv="10") as owner:
        assert await owner.changes(1) == [("ADDED", "a", 11)]
        assert await owner.message() == Bookmark(resource=PODS, resource_version="500")
        await owner.settled()
    assert fake.seen[1].query["resourceVersion"] == "500"
    assert owner.reflector.counters.bookmarks == 1
    assert sleeps == []


async def test_a_half_open_watch_is_given_up_and_resumed(fake, transport, sleeps, make):
    """A server that has sent bookmarks and falls silent is taken for gone, long before the watch's own time is up."""
    settings = ReflectorSettings(silence_max_s=0.5, short_watch_s=0, verify_resume=False)
    fake.script = [
        fake.lines(make.bookmark(11)),
        fake.lines(end="hang"),
        fake.lines(make.event("ADDED", "a", 12), make.bookmark(13), end="hang"),
    ]
    async with following(transport, sleeps, resume_rv="10", settings=settings) as owner:
        assert isinstance(await owner.message(), Bookmark)
        assert await owner.changes(1) == [("ADDED", "a", 12)]
    assert owner.reflector.counters.silences >= 1
    assert [seen.query["resourceVersion"] for seen in fake.seen[:3]] == ["10", "11", "11"]


async def test_refusals_are_waited_out_visibly(fake, transport, sleeps, make, caplog):
    """500, 503, 429 and a refused credential: growing pauses, Retry-After honoured, health has since when and why."""
    health = []

    async def sleep(seconds):
        await sleeps(seconds)
        health.append(reflector.health)

    fake.script = [
        fake.status(500, "InternalError"),
        fake.status(503, "ServiceUnavailable"),
        fake.status(429, "TooManyRequests", Retry_After="9"),
        fake.status(403, "Forbidden"),
        fake.reset(),
        fake.reset(),
        fake.answer(200, b"<html>welcome</html>"),
        fake.answer(200, make.page(version=5)),
        fake.lines(end="hang"),
    ]
    with caplog.at_level(logging.INFO):
        async with following(transport, sleep, wall_clock=lambda: 77.0) as owner:
            reflector = owner.reflector
            assert reflector.health.ok
            assert (await owner.message()).complete
            await owner.settled()
            assert reflector.health.ok
    assert [(each.failing_since, each.attempts) for each in health] == [(77.0, n) for n in range(1, 7)]
    assert "503 ServiceUnavailable" in health[1].error
    assert 9 <= sleeps[2] <= 9 * 1.25
    assert owner.reflector.counters.failures == 6
    assert any(text.startswith("pods: the API server answers again, after") for text in caplog.messages)


async def test_a_server_that_ends_every_watch_at_once_is_not_hammered(fake, transport, sleeps):
    """Watches that end immediately and say nothing are failures with growing pauses, not a loop."""
    fake.script = [fake.lines() for _ in range(5)]
    settings = ReflectorSettings(short_watch_s=1000, backoff_first_s=1, verify_resume=False)
    async with following(transport, sleeps, resume_rv="10", settings=settings) as owner:
        await fake.until_seen(6)
        await owner.settled()
    assert len(sleeps) == 5
    assert all(lower < higher for lower, higher in zip(sleeps, sleeps[2:], strict=False))


class Endless:
    """An in-process server with a watch of `count` events, counting how many were taken."""

    def __init__(self, make, count):
        self.make, self.count, self.taken = make, count, 0

    async def handle(self, request):
        raise AssertionError("nobody should list")

    async def watch(self, request):
        return self.lines()

    async def lines(self):
        for version in range(1, self.count + 1):
            self.taken += 1
            yield json.dumps(self.make.event("ADDED", f"p{version}", version)).encode()
        await anyio.sleep_forever()


async def test_a_busy_owner_gets_the_burst_and_holds_back_the_wire(sleeps, make):
    """No more objects wait than declared, and none is lost or reordered."""
    server = Endless(make, 300)
    settings = ReflectorSettings(pending_max=20, burst_max=8, verify_resume=False)
    transport = InProcessTransport(server)
    async with following(transport, sleeps, resume_rv="0", buffer=0, settings=settings) as owner:
        await anyio.wait_all_tasks_blocked()
        assert owner.reflector.pending == 20
        # One burst is on its way to the owner, one line is held by the reflector.
        assert server.taken <= 20 + 8 + 1
        found: list[Any] = []
        sizes: list[int] = []
        while len(found) < 300:
            message = await owner.message()
            sizes.append(len(message.changes))
            found += [int(change.resource_version) for change in message.changes]
    assert found == list(range(1, 301))
    assert max(sizes) == 8


async def test_an_owner_that_closes_its_end_ends_the_reflector(fake, transport, sleeps, make):
    """A reflector without an owner is a mistake of the program, and is not retried."""
    fake.script = [fake.answer(200, make.page(version=1))]
    reflector = Reflector(KubeClient(transport), PODS, sleep=sleeps)
    sink, source = anyio.create_memory_object_stream[Any](0)
    source.close()
    with sink, pytest.raises(ExceptionGroup) as caught:
        await reflector.run(sink)
    assert caught.group_contains(anyio.BrokenResourceError)


VERIFYING = ReflectorSettings(short_watch_s=0)


async def test_a_server_that_went_back_behind_our_version_is_listed_again(fake, transport, sleeps, make, caplog):
    """Restored from a backup before a restart: waiting for the old version would be for ever."""
    fake.script = [
        fake.answer(200, make.page(make.pod("a", 1), version=300, token="t")),
        fake.answer(200, make.page(make.pod("a", 1), version=300)),
        fake.lines(end="hang"),
    ]
    with caplog.at_level(logging.WARNING):
        async with following(transport, sleeps, resume_rv="5000", settings=VERIFYING) as owner:
            assert names(await owner.message()) == ["a"]
            await fake.until_seen(3)
    assert owner.reflector.counters.rewound == 1
    assert [seen.query.get("limit") for seen in fake.seen] == ["1", "500", None]
    assert "behind our 5000" in caplog.text


@pytest.mark.parametrize("current", ["42", "100", "opaque"])
async def test_a_server_that_did_not_go_back_is_watched_at_once(fake, transport, sleeps, make, current):
    """Our version or a newer one: nothing to list."""
    fake.script = [
        fake.answer(200, make.page(version=0) | {"metadata": {"resourceVersion": current}}),
        fake.lines(make.event("ADDED", "b", 101), end="hang"),
    ]
    async with following(transport, sleeps, resume_rv="42", settings=VERIFYING) as owner:
        assert await owner.changes(1) == [("ADDED", "b", 101)]
    assert owner.reflector.counters.lists == 0
    assert [seen.query.get("resourceVersion") for seen in fake.seen] == [None, "42"]


@pytest.mark.parametrize("end", ["reset", "well"])
async def test_a_watch_that_broke_is_resumed_with_an_overlap(fake, transport, sleeps, make, end):
    """The last change is requested again, recognised and not delivered twice; so is one that ended early."""
    fake.script = [
        fake.answer(200, make.page(version=100)),
        fake.lines(make.event("ADDED", "b", 101), make.event("MODIFIED", "b", 103), make.bookmark(110), end=end),
        fake.lines(make.event("MODIFIED", "b", 103), make.event("DELETED", "b", 120), end="hang"),
    ]
    async with following(transport, sleeps, settings=VERIFYING) as owner:
        await owner.message()
        assert await owner.changes(2) == [("ADDED", "b", 101), ("MODIFIED", "b", 103)]
        assert (await owner.message()).resource_version == "110"
        assert await owner.changes(1) == [("DELETED", "b", 120)]
    assert fake.seen[2].query["resourceVersion"] == "102"
    assert owner.reflector.counters.lists == 1


@pytest.mark.parametrize(
    "first",
    [("MODIFIED", "c", 103), ("MODIFIED", "b", 104), ("DELETED", "b", 103)],
    ids=["another object", "another version", "another change"],
)
async def test_a_server_whose_history_is_another_is_listed_again(fake, transport, sleeps, make, caplog, first):
    """Restored from a backup and past our version already: its versions say nothing, its changes do."""
    fake.script = [
        fake.answer(200, make.page(version=100)),
        fake.lines(make.event("MODIFIED", "b", 103), end="reset"),
        fake.lines(make.event(*first), make.event("ADDED", "d", 130), end="hang"),
        fake.answer(200, make.page(make.pod("d", 130), version=140)),
        fake.lines(end="hang"),
    ]
    with caplog.at_level(logging.WARNING):
        async with following(transport, sleeps, settings=VERIFYING) as owner:
            await owner.message()
            assert await owner.changes(1) == [("MODIFIED", "b", 103)]
            assert names(await owner.message()) == ["d"]
            await fake.until_seen(5)
    assert owner.reflector.counters.rewound == 1
    assert "version 103 is not the change that it was" in caplog.text
    assert fake.seen[4].query["resourceVersion"] == "140"


async def test_a_server_behind_our_version_that_has_nothing_to_say_is_listed_again(fake, transport, sleeps, make):
    """The server would wait until it reaches that version, and its events then are of another history."""
    fake.script = [
        fake.answer(200, make.page(version=100)),
        fake.lines(make.event("MODIFIED", "b", 103), end="reset"),
        fake.lines(end="hang"),
        fake.answer(200, make.page(make.pod("a", 1), version=50)),
        fake.lines(end="hang"),
    ]
    settings = ReflectorSettings(short_watch_s=0, overlap_s_max=0.05)
    async with following(transport, sleeps, settings=settings) as owner:
        await owner.message()
        assert await owner.changes(1) == [("MODIFIED", "b", 103)]
        assert (await owner.message()).resource_version == "50"
        await fake.until_seen(5)
    assert owner.reflector.counters.rewound == 1


async def test_a_watch_that_broke_before_it_said_anything_is_no_proof(fake, transport, sleeps, make):
    """No event was received by which the history could be recognised, so it lists again."""
    fake.script = [
        fake.answer(200, make.page(version=100)),
        fake.lines(make.bookmark(110), end="reset"),
        fake.answer(200, make.page(make.pod("a", 1), version=120)),
        fake.lines(end="hang"),
    ]
    async with following(transport, sleeps, settings=VERIFYING) as owner:
        await owner.message()
        assert (await owner.message()).resource_version == "110"
        assert names(await owner.message()) == ["a"]
        await fake.until_seen(4)
    assert owner.reflector.counters.unproven == 1


async def test_a_page_that_is_refused_does_not_begin_the_list_anew(fake, transport, sleeps, make):
    """Throttled in the middle: the same page is requested again, at the server's Retry-After."""
    fake.script = [
        fake.answer(200, make.page(make.pod("a", 1), version=10, token="t")),
        fake.status(429, "TooManyRequests", Retry_After="3"),
        fake.answer(200, make.page(make.pod("b", 2), version=10)),
        fake.lines(end="hang"),
    ]
    async with following(transport, sleeps) as owner:
        assert [names(await owner.message()) for _ in range(2)] == [["a"], ["b"]]
        await fake.until_seen(4)
    assert [seen.query.get("continue") for seen in fake.seen[:3]] == [None, "t", "t"]
    assert 3 <= sleeps[0] <= 3 * 1.25


async def test_a_line_that_stays_unreadable_is_gone_around_by_a_list(fake, transport, sleeps, make):
    """Three times the same undecodable data at the same version: a list replaces the watch."""
    rubbish = fake.chunks(b'{"type": "ADD\n')
    fake.script = [
        fake.answer(200, make.page(version=10)),
        *[rubbish] * 3,
        fake.answer(200, make.page(make.pod("a", 11), version=20)),
        fake.lines(end="hang"),
    ]
    async with following(transport, sleeps) as owner:
        assert names(await owner.message()) == []
        assert names(await owner.message()) == ["a"]
        await fake.until_seen(6)
    assert owner.reflector.counters.undecodable_lines == 3


async def test_a_resource_that_is_not_installed_is_empty_until_it_is(fake, transport, sleeps, make):
    """An optional one: told once, asked for again after growing pauses, and listed when the server serves it."""
    missing = fake.answer(404, b"404 page not found\n")
    fake.script = [
        missing,
        missing,
        missing,
        fake.answer(200, make.page(make.pod("a", 1), version=10)),
        fake.lines(make.event("ADDED", "b", 11), end="hang"),
    ]
    optional = msgspec.structs.replace(PODS, optional=True)
    async with following(transport, sleeps, resource=optional) as owner:
        empty = await owner.message()
        assert (names(empty), empty.complete, empty.resource_version) == ([], True, "")
        listed = await owner.message()
        assert (names(listed), listed.resource_version) == (["a"], "10")
        assert await owner.changes(1) == [("ADDED", "b", 11)]
        assert owner.reflector.counters.absences == 3
        assert owner.reflector.health.ok
    assert 0.5 <= sleeps[0] <= 1 < sleeps[2] <= 4
