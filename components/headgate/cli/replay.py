"""`headgate replay`: fold the log again, repeat the decisions of every process, and compare."""

import time
from typing import Annotated

import anyio
import msgspec
import typer

from headgate.cli import options
from headgate.cli.folding import contained
from headgate.cli.output import FAILED, OK, Output, console, emit, say
from headgate.cli.source import Source, commits, decoded, open_source, parse_at
from headgate.core import fold
from headgate.core.fold.quarantine import Treatments
from headgate.core.log.refusal import CommitFilter
from headgate.core.verification.check import ReplayDifference
from headgate.core.verification.replay import Plan, Replay, Replayed
from headgate.events.base import Producer
from headgate.events.commit import Position
from headgate.events.ids import Seq

app = typer.Typer(add_completion=False)

LIVE_TIMEOUT_S = 10.0
_EPILOG = """\b
Examples:
  headgate replay                       fold everything, say how fast
  headgate replay --verify              and decide again what was decided, compare every hash
  headgate replay --verify --log run.jsonl.gz
Exit code 1 when anything differs; the first difference is shown.
"""


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What `headgate replay` prints. `live` is the snapshotter's hash of the same position, where it is available."""

    replayed: Replayed
    duration_s: float
    events_per_s: float
    live: str = ""


@app.command(epilog=_EPILOG)
def replay(
    start: Annotated[
        str | None, typer.Option("--from", metavar="POSITION", help="Compare from here on; before it only fold.")
    ] = None,
    stop: Annotated[str | None, typer.Option("--to", metavar="POSITION|TIME", help="Stop there.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Decide everything again and compare every hash.")] = False,
    output: options.OutputOption = Output.TABLE,
    data: options.Data = None,
    cell: options.Cell = None,
    nats: options.Nats = None,
    log: options.LogFile = None,
) -> None:
    """Fold the log again and, with --verify, prove that the same log gives the same state and the same decisions."""
    where = options.SourceOptions(data=data, cell=cell, nats=nats, log=log)
    answer = anyio.run(lambda: again(where, start, stop, verify=verify))
    emit(answer, output, lambda: show(answer, verified=verify))
    raise typer.Exit(FAILED if answer.replayed.differences else OK)


async def again(where: options.SourceOptions, start: str | None, stop: str | None, *, verify: bool) -> ReplayResult:
    """Replay a log. Raises CliError, and what folding raises."""
    first = parse_at(start).seq or 1
    until = parse_at(stop)
    async with open_source(where) as source:
        if until.seq is None and until.time_ms is None:
            # A running cell continues; both passes must read the same log.
            until = msgspec.structs.replace(until, seq=await source.last_seq())
        decide = None
        if verify:
            from headgate.core.cycle import decide_cycle

            decide = decide_cycle
        begun = time.perf_counter()

        async def read(treatments: Treatments) -> Replayed:
            plan = await _plan(source, until.seq) if verify else Plan()
            plan.cycles = {position: count for position, count in plan.cycles.items() if position >= first - 1}
            replaying = Replay(fold.new_state(source.cell), plan, decide, treatments, first=first)
            async for logged in commits(source, until):
                replaying.feed(logged)
            return replaying.result()

        result = await contained(source, until, read)
        duration_s = time.perf_counter() - begun
        live = await _live_hash(source, result.position) if verify and result.snapshots_alike else ""
    if live and live != result.state_hash:
        difference = ReplayDifference(
            what="the live state of the snapshotter",
            position=Position(Seq(result.position)),
            recorded=live,
            replayed=result.state_hash,
        )
        result = msgspec.structs.replace(result, differences=(*result.differences, difference))
    rate = result.events / duration_s if duration_s else 0.0
    return ReplayResult(replayed=result, duration_s=round(duration_s, 3), events_per_s=round(rate), live=live)


async def _plan(source: Source, stop: int | None) -> Plan:
    """The first pass: what is to be compared at which position."""
    from headgate.cli.deciding_again import checks

    plan = Plan(checks(), CommitFilter(source.cell))
    async for entries in source.read(1, stop):
        for logged in decoded(entries):
            plan.feed(logged)
    return plan


async def _live_hash(source: Source, position: int) -> str:
    """The running snapshotter's state hash for a position; "" when it is not available."""
    info = source.info
    snapshotter = info.processes.get(Producer.SNAPSHOTTER.value) if info is not None else None
    if snapshotter is None or not snapshotter.address:
        return ""
    import aiohttp

    url = f"{snapshotter.address}/state/hash?at={position}"
    try:
        timeout = aiohttp.ClientTimeout(total=LIVE_TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as response:
            if response.status != 200:
                say(f"the snapshotter has no hash of position {position} ({response.status}): not compared")
                return ""
            body = msgspec.json.decode(await response.read(), type=dict[str, object])
    except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError) as error:
        say(f"the snapshotter could not be asked ({error}): the live state is not compared")
        return ""
    return str(body.get("stateHash") or body.get("state_hash") or "")


def show(answer: ReplayResult, *, verified: bool) -> None:
    """The first difference, and a summary."""
    from rich.markup import escape

    out = console()
    if answer.replayed.differences:
        first = answer.replayed.differences[0]
        out.print(f"[cyan]{first.position}[/cyan] [red]{escape(first.what)} differs[/red]")
        out.print(f"  recorded: {escape(first.recorded)}")
        out.print(f"  replayed: {escape(first.replayed)}")
        if first.version:
            out.print(
                f"  recorded by Headgate {escape(first.version)}. This is a divergence: what a process has decided by "
                "other rules than those of this version is not compared"
            )
    out.print(escape(summary(answer, verified=verified)))


def summary(answer: ReplayResult, *, verified: bool) -> str:
    """The replay in one line."""
    result = answer.replayed
    text = (
        f"replay: {result.commits} commits, {result.events} events up to position {result.position} in "
        f"{answer.duration_s:.2f} s ({answer.events_per_s:,.0f} events/s), state hash {result.state_hash}"
    )
    if not verified:
        return text
    found = f"{len(result.differences)} differences" if result.differences else "no differences"
    live = ", the live state" if answer.live else ""
    counts = {"cycles": result.cycles, **result.compared, "snapshots": result.snapshots}
    compared = ", ".join(f"{count} {name}" for name, count in counts.items())
    return f"{text}; {compared}{live} compared: {found}{_not_compared(result)}"


def _not_compared(result: Replayed) -> str:
    """The deliberate changes: decisions made under other rules."""
    if not result.passed_over:
        return ""
    terms = ", ".join(
        f"{each.producer.value} rules {each.rules}" + (f" of Headgate {each.version}" if each.version else "")
        for each in result.other_rules
    )
    return (
        f"; {result.passed_over} commits not compared, because they were decided by other rules than those of this "
        f"version ({terms})"
    )
