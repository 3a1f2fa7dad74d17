"""How the scheduler's process reaches extenders: by its own file, or else by the configuration of the log."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from headgate.core import fold
from headgate.core.machine.contract import AskExtender
from headgate.core.state.tables import State
from headgate.events.ids import PodKey
from headgate.processes.runtime.extender_carrier import ExtenderCarrier
from headgate.processes.runtime.settings import SettingsError

pytestmark = pytest.mark.anyio


@pytest.fixture
async def url(anyio_backend):
    async def handle(request: web.BaseRequest) -> web.StreamResponse:
        return web.json_response({"path": request.path, "sent": await request.json()})

    runner = web.ServerRunner(web.Server(handle), shutdown_timeout=1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


def document(url: str, verb: str = "filter", **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "extenders": [{"urlPrefix": url, "filterVerb": verb, **fields}],
    }


def ask(url: str, verb: str = "filter") -> AskExtender:
    return AskExtender(id="1", pod=PodKey("ns/p"), extender=url, path=verb, body={"a": 1})


def state_of(found: dict[str, Any]) -> State:
    state = fold.new_state("main")
    state.scheduler_configuration = found
    return state


async def test_without_a_file_the_extenders_of_the_log_are_called(url):
    """As its configuration is at the time of the call."""
    carrier = ExtenderCarrier("")
    carrier.state = state_of(document(url))
    completed = await carrier.ask(ask(url))
    assert (completed.call_id, completed.status) == ("1", 200)
    assert json.loads(completed.body) == {"path": "/filter", "sent": {"a": 1}}
    assert (await carrier.ask(ask(url, "other"))).status == 0
    carrier.state.scheduler_configuration = document(url, "other")
    assert (await carrier.ask(ask(url, "other"))).status == 200
    await carrier.aclose()


async def test_the_file_says_how_extenders_are_reached(url, tmp_path: Path):
    """Not the log; and a changed file is read again. A file that is gone fails the call, and says which."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(yaml.safe_dump(document(url)))
    carrier = ExtenderCarrier(str(file))
    carrier.state = state_of(document(url, "other"))
    assert (await carrier.ask(ask(url))).status == 200
    completed = await carrier.ask(ask(url, "other"))
    assert (completed.status, b"restart with its configuration" in completed.body) == (0, True)
    file.write_text(yaml.safe_dump(document(url, "other")))
    assert (await carrier.ask(ask(url, "other"))).status == 200
    file.unlink()
    completed = await carrier.ask(ask(url, "other"))
    assert (completed.status, str(file).encode() in completed.body) == (0, True)
    await carrier.aclose()


async def test_certificates_that_are_not_there_are_an_error_at_the_start(tmp_path: Path):
    """In one line that names the file and the field."""
    file = tmp_path / "scheduler.yaml"
    file.write_text(yaml.safe_dump(document("https://x", tlsConfig={"caFile": "/no/such"})))
    with pytest.raises(SettingsError, match=r"scheduler.yaml: extenders\[0\].tlsConfig: /no/such cannot be read"):
        ExtenderCarrier(str(file))
