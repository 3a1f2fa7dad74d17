"""Calls as data: retried until final, in order per key, within limits, visibly."""

import json
import logging
from random import Random
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.adapters.kubernetes.call import CallExecutor, CallOutcome, CallSettings, KubeCall
from headgate.adapters.kubernetes.errors import TransportError
from headgate.adapters.kubernetes.transport import NO_HEADERS, NO_QUERY, Response

pytestmark = pytest.mark.anyio


def call(name: str, key: str = "") -> KubeCall:
    return KubeCall(id=name, method="POST", path=f"/{name}", body=b"{}", content_type="application/json", key=key)


class Scripted:
    """A transport that answers from a list per path: a status, an error, or an event to wait for first."""

    def __init__(self, **script: list[Any]) -> None:
        self.script = script
        self.order: list[str] = []
        self.in_flight = 0
        self.in_flight_max = 0

    async def request(self, method, path, *, query=NO_QUERY, body=None, content_type=None, headers=NO_HEADERS):
        name = path[1:]
        self.order.append(name)
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            steps = self.script.get(name, [])
            step = steps.pop(0) if steps else 200
            await anyio.lowlevel.checkpoint()
            if isinstance(step, anyio.Event):
                await step.wait()
                step = 200
            if isinstance(step, Exception):
                raise step
            return Response(status=step, headers={}, body=b'{"kind":"Status"}' if step >= 400 else b"{}")
        finally:
            self.in_flight -= 1

    def stream(self, path, *, query=NO_QUERY, read_timeout_s=None):
        raise NotImplementedError("calls stream nothing")


async def test_operating_errors_are_retried_until_the_answer_is_final(fake, transport, sleeps, caplog):
    """500, 503, 429, 401 and a broken connection all pass; each retry is counted, logged and waited for."""
    fake.script = [
        fake.status(500, "InternalError"),
        fake.status(503, "ServiceUnavailable"),
        fake.status(429, "TooManyRequests", Retry_After="7"),
        fake.status(401, "Unauthorized"),
        fake.reset(),
        fake.answer(201, {"made": True}),
    ]
    executor = CallExecutor(transport, random=Random(1), sleep=sleeps)
    with caplog.at_level(logging.WARNING):
        outcome = await executor.run(call("c"))
    assert (outcome.id, outcome.status, json.loads(outcome.body), outcome.attempts) == ("c", 201, {"made": True}, 6)
    assert outcome.ok
    counters = executor.counters
    assert (counters.retried_server, counters.retried_throttled, counters.retried_unauthorized) == (2, 1, 1)
    assert (counters.retried_transport, counters.retries, counters.attempts) == (1, 5, 6)
    assert (counters.calls, counters.succeeded, counters.refused, counters.unfinished) == (1, 1, 0, 0)
    assert len(sleeps) == 5
    assert 7 <= sleeps[2] <= 7 * 1.25
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 5
    assert "429 TooManyRequests to POST /c" in caplog.messages[2]


DENIED = 'jobs.batch is forbidden: User "system:serviceaccount:headgate:ungater" cannot patch resource "jobs"'


@pytest.mark.parametrize(
    ("status", "body", "next_move"),
    [
        (403, json.dumps({"kind": "Status", "message": DENIED}), "an RBAC rule for patch jobs.batch in namespace a"),
        (404, "404 page not found\n", "the API server does not serve jobs.batch"),
    ],
)
async def test_what_an_operator_repairs_is_waited_for_and_told_once(
    fake, transport, sleeps, caplog, status, body, next_move
):
    """A missing right and a resource that is not installed prove nothing about the object; one line has the remedy."""
    fake.script = [*(fake.answer(status, body.encode()) for _ in range(3)), fake.answer(200, {})]
    executor = CallExecutor(transport, sleep=sleeps)
    patch = KubeCall(id="c", method="PATCH", path="/apis/batch/v1/namespaces/a/jobs/j", body=b"{}")
    with caplog.at_level(logging.WARNING):
        outcome = await executor.run(patch)
    assert (outcome.status, outcome.attempts, executor.counters.retried_refused) == (200, 4, 3)
    assert len(caplog.messages) == 1
    assert next_move in caplog.messages[0]


async def test_a_403_of_an_admission_plugin_is_final(fake, transport, sleeps):
    """A quota that is used up is the server's considered answer."""
    message = 'jobs.batch "j" is forbidden: exceeded quota: q, requested: count/jobs.batch=1, used: 1, limited: 1'
    fake.script = [fake.answer(403, {"kind": "Status", "reason": "Forbidden", "message": message})]
    outcome = await CallExecutor(transport, sleep=sleeps).run(call("c"))
    assert (outcome.status, outcome.attempts) == (403, 1)


async def test_a_create_that_conflicts_is_made_again(fake, transport, sleeps):
    """Contention inside the server is no word about the object; that it exists already is, and so is a binding's."""
    path = "/api/v1/namespaces/a/pods"
    fake.script = [fake.status(409, "Conflict"), fake.status(409, "AlreadyExists"), fake.status(409, "Conflict")]
    executor = CallExecutor(transport, sleep=sleeps)
    create = await executor.run(KubeCall(id="c", method="POST", path=path, body=b"{}"))
    bind = await executor.run(KubeCall(id="b", method="POST", path=f"{path}/p/binding", body=b"{}"))
    assert (create.status, create.attempts, create.error().is_already_exists) == (409, 2, True)
    assert (bind.status, bind.attempts, bind.error().is_conflict) == (409, 1, True)


async def test_an_eviction_that_a_budget_forbids_is_an_outcome(fake, transport, sleeps):
    """It may last for ever, and it is no load: the process decides. A 429 of the server's own is waited for."""
    causes = [{"reason": "DisruptionBudget", "message": "The disruption budget b needs 2 healthy pods and has 2"}]
    budget = {"kind": "Status", "reason": "TooManyRequests", "details": {"causes": causes}}
    fake.script = [fake.status(429, "TooManyRequests", Retry_After="1"), fake.answer(429, budget)]
    outcome = await CallExecutor(transport, sleep=sleeps).run(call("pods/p/eviction"))
    assert (outcome.status, outcome.attempts) == (429, 2)
    assert outcome.error().is_budget_exhausted


async def test_an_eviction_of_a_pod_with_two_budgets_is_an_outcome(fake, transport, sleeps):
    """The server answers 500, and will for as long as both budgets cover the pod."""
    why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    fake.script = [fake.answer(500, {"kind": "Status", "reason": "InternalError", "message": why})]
    outcome = await CallExecutor(transport, sleep=sleeps).run(call("pods/p/eviction"))
    assert (outcome.status, outcome.attempts) == (500, 1)


async def test_a_server_that_is_away_is_told_of_once_and_not_by_each_call(sleeps, caplog):
    """Fifty calls fail together: one line when it begins, one when it is over."""
    gone = TransportError("refused", maybe_applied=False)
    executor = CallExecutor(Scripted(**{f"c{n}": [gone, gone] for n in range(50)}), sleep=sleeps)
    with caplog.at_level(logging.INFO):
        async with anyio.create_task_group() as tasks:
            for number in range(50):
                tasks.start_soon(executor.run, call(f"c{number}"))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert executor.counters.retries == 100


async def test_a_definite_no_is_an_outcome(fake, transport, sleeps):
    """A 4xx that another try would not change comes back at once, with the server's words."""
    fake.script = [fake.status(409, "AlreadyExists")]
    executor = CallExecutor(transport, sleep=sleeps)
    outcome = await executor.run(call("c"))
    assert (outcome.ok, outcome.status, outcome.attempts, sleeps) == (False, 409, 1, [])
    assert outcome.error().is_already_exists
    assert executor.counters.refused == 1


@pytest.mark.parametrize(
    ("first", "maybe"),
    [
        (TransportError("refused", maybe_applied=False), False),
        (TransportError("reset", maybe_applied=True), True),
        (429, False),
        (401, False),
        (500, True),
        (504, True),
    ],
)
async def test_a_repetition_says_whether_the_first_try_may_have_worked(sleeps, first, maybe):
    """AlreadyExists after a lost response may be our own object, and the outcome allows for that."""
    executor = CallExecutor(Scripted(c=[first, 409]), sleep=sleeps)
    outcome = await executor.run(call("c"))
    assert (outcome.status, outcome.maybe_repeated) == (409, maybe)


async def test_health_says_since_when_and_why(sleeps):
    """While a call is retried the executor is unhealthy since its first failure, and no longer."""
    now = iter([100.0, 200.0])
    seen = []

    async def sleep(seconds):
        seen.append(executor.health)

    executor = CallExecutor(Scripted(c=[500, 503]), sleep=sleep, wall_clock=lambda: next(now))
    assert executor.health.ok
    await executor.run(call("c"))
    assert [(health.failing_since, health.attempts) for health in seen] == [(100.0, 1), (100.0, 2)]
    assert "500 InternalError" in seen[0].error
    assert "503 ServiceUnavailable" in seen[1].error
    assert executor.health.ok


async def test_a_failing_call_holds_back_its_key_and_nobody_else(sleeps):
    """Order within a key survives retries; other keys go past, even with a single slot."""
    release = anyio.Event()

    async def sleep(seconds):
        await release.wait()

    transport = Scripted(a1=[500])
    executor = CallExecutor(transport, CallSettings(in_flight_max=1), sleep=sleep)
    async with anyio.create_task_group() as tasks:
        for name in ("a1", "a2", "b1"):
            tasks.start_soon(executor.run, call(name, key=name[0]))
        await anyio.wait_all_tasks_blocked()
        assert transport.order == ["a1", "b1"]
        assert not executor.health.ok
        release.set()
    assert transport.order == ["a1", "b1", "a1", "a2"]
    assert executor._turns == {}


async def test_a_cancelled_call_gives_up_its_place(sleeps):
    """Calls behind one that is cancelled while it waits still run after the ones before it."""
    blocked = anyio.Event()
    transport = Scripted(a1=[blocked])
    executor = CallExecutor(transport, sleep=sleeps)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(executor.run, call("a1", key="a"))
        async with anyio.create_task_group() as doomed:
            doomed.start_soon(executor.run, call("a2", key="a"))
            await anyio.wait_all_tasks_blocked()
            doomed.cancel_scope.cancel()
        tasks.start_soon(executor.run, call("a3", key="a"))
        await anyio.wait_all_tasks_blocked()
        assert transport.order == ["a1"]
        blocked.set()
    assert transport.order == ["a1", "a3"]
    assert (executor.counters.unfinished, executor._turns) == (0, {})


async def test_no_more_requests_are_under_way_than_declared(sleeps):
    """The slots bound the requests, however many calls there are."""
    transport = Scripted()
    executor = CallExecutor(transport, CallSettings(in_flight_max=3), sleep=sleeps)
    async with anyio.create_task_group() as tasks:
        for number in range(20):
            tasks.start_soon(executor.run, call(f"c{number}"))
    assert transport.in_flight_max == 3
    assert executor.counters.in_flight == 0


async def test_requests_begin_no_faster_than_declared(sleeps):
    """Beyond the burst, each request is put off by one more interval."""
    executor = CallExecutor(Scripted(), CallSettings(qps=10, burst=2), sleep=sleeps, clock=lambda: 0.0)
    for number in range(5):
        await executor.run(call(f"c{number}"))
    assert sleeps == pytest.approx([0.1, 0.2, 0.3])
    assert executor.limiter.delayed == 3


async def test_serving_a_stream_takes_no_more_than_declared():
    """A slow server holds up the sender, not the memory."""
    blocked = anyio.Event()
    executor = CallExecutor(Scripted(**{f"c{n}": [blocked] for n in range(6)}), CallSettings(accepted_max=2))
    calls_in, calls = anyio.create_memory_object_stream[KubeCall](0)
    outcomes_in, outcomes = anyio.create_memory_object_stream[CallOutcome](10)
    async with calls_in, calls, outcomes_in, outcomes, anyio.create_task_group() as tasks:
        tasks.start_soon(executor.serve, calls, outcomes_in)
        await calls_in.send(call("c0"))
        await calls_in.send(call("c1"))
        await anyio.wait_all_tasks_blocked()
        with pytest.raises(anyio.WouldBlock):
            calls_in.send_nowait(call("c2"))
        blocked.set()
        for number in range(2, 6):
            await calls_in.send(call(f"c{number}"))
        calls_in.close()
        assert {(await outcomes.receive()).id for _ in range(6)} == {f"c{number}" for number in range(6)}


STATUSES = st.lists(st.sampled_from([500, 503, 429, 401, TransportError("cut", maybe_applied=True)]), max_size=3)


@given(
    keys=st.lists(st.sampled_from(["", "a", "b"]), min_size=1, max_size=12),
    data=st.data(),
    in_flight_max=st.integers(1, 4),
)
def test_every_call_ends_once_and_keys_keep_their_order(keys, data, in_flight_max):
    """Whatever fails how often: one outcome a call, and the outcomes of a key in the order of its calls."""
    calls = [call(f"c{number}", key=key) for number, key in enumerate(keys)]
    script = {each.id: [*data.draw(STATUSES), data.draw(st.sampled_from([200, 404]))] for each in calls}
    attempts = {name: len(steps) for name, steps in script.items()}

    async def main():
        async def sleep(seconds):
            await anyio.lowlevel.checkpoint()

        executor = CallExecutor(
            Scripted(**script), CallSettings(in_flight_max=in_flight_max), random=Random(0), sleep=sleep
        )
        calls_in, source = anyio.create_memory_object_stream[KubeCall](len(calls))
        sink, outcomes = anyio.create_memory_object_stream[CallOutcome](len(calls))
        async with calls_in, source, sink, outcomes:
            for each in calls:
                calls_in.send_nowait(each)
            calls_in.close()
            await executor.serve(source, sink)
            return [outcomes.receive_nowait() for _ in calls]

    done = anyio.run(main)
    assert sorted(outcome.id for outcome in done) == sorted(each.id for each in calls)
    assert all(outcome.attempts == attempts[outcome.id] for outcome in done)
    for key in {"a", "b"}:
        wanted = [each.id for each in calls if each.key == key]
        assert [outcome.id for outcome in done if outcome.id in wanted] == wanted
