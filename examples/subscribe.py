"""
Subscribes to the feed of a cell and prints each admission and preemption as one line.

    pip install 'nats-py[nkeys]'
    python examples/subscribe.py nats://127.0.0.1:4222 main .headgate/main/nats-users/feed.nk

The feed is a JetStream stream. The durable consumer `example` resumes after the last event that it has acknowledged.
Leave out the NKEY file for a broker without users.
"""

import asyncio
import json
import sys

import nats
from nats.aio.msg import Msg

PRINTED = ("workload.admitted", "workload.preempted")


def line_of(message: Msg) -> str:
    """One event as a line: its position in the log, its type, the workload and the message."""
    event = json.loads(message.data)
    return f"{(message.headers or {})['ce-id']} {event['type']} {event['workload']}: {event['message']}"


async def follow(url: str, cell: str, nkey_file: str | None = None, *, lines_max: int | None = None) -> None:
    """Print events from the beginning of the feed on. Ends after `lines_max` lines, if that is given."""
    client = await nats.connect(
        url, nkeys_seed=nkey_file, inbox_prefix=f"_INBOX_headgate_{cell}_feed", connect_timeout=10
    )
    feed = await client.jetstream().pull_subscribe(
        f"headgate.{cell}.workload.*.>", durable="example", stream=f"HEADGATE_{cell}_FEED"
    )
    printed = 0
    while lines_max is None or printed < lines_max:
        try:
            messages = await feed.fetch(100, timeout=5)
        except TimeoutError:
            continue
        for message in messages:
            if json.loads(message.data)["type"] in PRINTED:
                print(line_of(message), flush=True)
                printed += 1
            await message.ack()
    await client.close()


if __name__ == "__main__":
    asyncio.run(follow(*sys.argv[1:4]))
