"""
A real API server that is killed, compacted and cut off, while processes are killed: all jobs finish, once.

The six processes reach the API server through a proxy that refuses or breaks a twentieth of their writes, before or
after the API server has carried them out, delays some requests, and cuts their watches, also in the middle of a line.
"""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import anyio
import msgspec
import pytest
from tests.chaos.harness import PROCESSES, Chaos, chaos

from headgate.adapters.kubernetes.crds.render import custom_resource_definitions
from headgate.cli.supervisor import place_all
from headgate.testing.control_plane import API_SERVER, Assets, ControlPlane, Options, control_plane
from headgate.testing.control_plane.fault_proxy import FaultProxy, ProxyFaults, Trouble, fault_proxy

pytestmark = [pytest.mark.chaos_kube, pytest.mark.anyio, pytest.mark.timeout(900)]

ROUNDS = 10
"""Each kills the API server once and three of the processes."""
KILLS_EACH = 5
START_S = 10.0
FAULTS = ProxyFaults(writes=0.05, delays=0.05, delay_s_max=0.4, stream_s_mean=15.0)


class Storm:
    """A cell under load on a real control plane, and the proxy between them."""

    def __init__(self, run: Chaos, plane: ControlPlane, proxy: FaultProxy) -> None:
        self.run = run
        self.plane = plane
        self.proxy = proxy
        # Each process as often as the next, in any order.
        self.victims = [name for name in PROCESSES for _ in range(KILLS_EACH)]
        run.random.shuffle(self.victims)

    async def kill_api_server(self, number: int) -> None:
        """Kill it, leave it away for a moment, start it again."""
        random = self.run.random
        await anyio.sleep(random.uniform(0, 1.0))
        self.plane.kill(API_SERVER)
        self.run.kills += 1
        self.run.say(f"API server killed {number}/{ROUNDS} at position {self.run.driver.state.position}")
        await anyio.sleep(random.uniform(0, 2.0))
        # It serves long before it reports ready, and no process under test waits for that.
        with anyio.move_on_after(START_S):
            await self.plane.start(API_SERVER)

    async def kill_processes(self, count: int) -> None:
        """Kill the next of them, one after the other, at random moments."""
        for _ in range(min(count, len(self.victims))):
            victim = self.victims.pop()
            await anyio.sleep(self.run.random.uniform(0, 1.5))
            await self.run.eventually(lambda victim=victim: self.run.cell.pid(victim) is not None, f"{victim} runs", 30)  # type: ignore[misc]
            self.run.cell.kill(victim)
            self.run.kills += 1
            self.run.say(f"{victim} killed")

    async def forget(self) -> None:
        """Compact etcd up to now."""
        await anyio.sleep(self.run.random.uniform(0, 1.0))
        revision = await self.plane.compact()
        self.run.say(f"etcd compacted up to {revision}")


@asynccontextmanager
async def storm(assets: Assets, folder: Path, seed: int) -> AsyncIterator[Storm]:
    """A cell on a control plane of its own, with trouble in between, until the block ends."""
    options = Options(nodes=0)
    async with control_plane(assets, folder / "plane", options=options) as plane:
        crds = {"apiVersion": "v1", "kind": "List", "items": custom_resource_definitions()}
        await plane.kubectl("create", "-f", "-", stdin=msgspec.json.encode(crds).decode())
        await plane.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=30s")
        async with fault_proxy(plane.access(), FAULTS, Random(seed)) as proxy:
            kubeconfig = folder / "proxied"
            proxy.write_kubeconfig(plane.kubeconfig, kubeconfig)
            tls = ssl.create_default_context(cafile=str(plane.ca_file))
            direct = {"server": plane.url, "token": plane.token, "tls": tls}
            async with chaos(
                folder / "cell", seed, kubeconfig=str(kubeconfig), placement=place_all(folder), **direct
            ) as run:
                run.more_pods = True
                yield Storm(run, plane, proxy)


async def test_jobs_survive_a_failing_control_plane_and_dying_processes(
    assets: Assets, tmp_path: Path, chaos_seed: int
) -> None:
    """API server killed, history forgotten, writes refused, answers lost, processes killed: audit and replay agree."""
    async with storm(assets, tmp_path, chaos_seed) as storming:
        run = storming.run
        for number in range(1, ROUNDS + 1):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(storming.kill_api_server, number)
                tasks.start_soon(storming.kill_processes, len(PROCESSES) * KILLS_EACH // ROUNDS)
            await storming.forget()
            if number % 4 == 0:
                async with storming.proxy.half_open():
                    run.say("the connections are half-open")
                    await anyio.sleep(run.random.uniform(2, 5))
            await run.progress(8, 120)
        assert not storming.victims
        storming.proxy.faults = ProxyFaults()
        await run.judge()
        done = storming.proxy.done
        run.say(f"the proxy did {dict(done)}")
        assert all(done[trouble] for trouble in Trouble), "the run was too short for every kind of trouble"
        assert done["cut"] + done["cut in a line"]
