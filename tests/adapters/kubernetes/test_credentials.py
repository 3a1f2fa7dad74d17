"""Who we are: loaded only when needed, renewed before it expires and after it was refused."""

import base64
import logging
import ssl
import subprocess
import sys
from types import SimpleNamespace

import pytest
import yaml

from headgate.adapters.kubernetes import credentials as module
from headgate.adapters.kubernetes.credentials import (
    EXPIRY_MARGIN_S,
    FILE_LOOK_S,
    RENEWAL_INTERVAL_S,
    KubeCredentials,
    load_credentials,
)
from headgate.adapters.kubernetes.errors import KubeConfigurationError
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.kubeconfig import ClusterAccess, resolve

pytestmark = pytest.mark.anyio


def test_a_plain_server_never_imports_the_large_configuration():
    """Six processes that use the embedded cluster save 0.6 GB and seconds of start-up."""
    code = """
import sys, anyio
from headgate.adapters.kubernetes import call, client, reflector
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.kubeconfig import resolve
async def main():
    async with open_transport(resolve(server="http://127.0.0.1:1")):
        pass
anyio.run(main)
assert "kubernetes_asyncio" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_configuration_is_read_without_the_models_beside_it(tmp_path):
    """kubernetes-asyncio's loaders do not need its 850 modules of models; a later import gets all of it."""
    path = tmp_path / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "main",
                "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
                "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
            }
        )
    )
    code = f"""
import sys, anyio
from headgate.adapters.kubernetes.credentials import load_credentials
from headgate.adapters.kubernetes.kubeconfig import resolve
made = anyio.run(load_credentials, resolve(kubeconfig={str(path)!r}))
assert anyio.run(made.authorization) == "Bearer t"
assert not [name for name in sys.modules if name.startswith("kubernetes_asyncio")]
from kubernetes_asyncio import client
assert client.V1Pod
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def loaded(header, expires_at=None):
    return SimpleNamespace(header=header, expires_at=expires_at, cert_file=None, key_file=None)


@pytest.fixture
def clock():
    return Clock()


def renewing(clock, *results, reread_s=None):
    """Credentials that load these results one after the other; the first is adopted at once."""
    queue = list(results)

    async def load():
        result = queue.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    made = KubeCredentials(load=load, reread_s=reread_s, clock=clock)
    made.adopt(queue.pop(0))
    return made


async def test_a_credential_is_renewed_before_it_expires(clock):
    """A plugin with an expiry is run again a margin before it, once for all requests."""
    made = renewing(clock, loaded("one", clock.now + 3600), loaded("two", clock.now + 7200))
    assert await made.authorization() == "one"
    clock.now += 3600 - EXPIRY_MARGIN_S - 1
    assert await made.authorization() == "one"
    clock.now += 1
    assert await made.authorization() == "two"
    assert await made.authorization() == "two"
    assert made.renewals == 1


async def test_a_token_file_is_read_again_every_minute(clock):
    """Kubelets renew the file; we only have to look."""
    made = renewing(clock, loaded("one"), loaded("two"), reread_s=60)
    clock.now += 59
    assert await made.authorization() == "one"
    clock.now += 1
    assert await made.authorization() == "two"


async def test_a_file_that_changes_is_read_when_it_has_changed(clock, tmp_path):
    """Seen within a second, not looked at with every request; one that is gone for a moment is not missed."""
    token = tmp_path / "token"
    token.write_text("1")
    results = [loaded("one"), loaded("two"), loaded("three")]

    async def load():
        return results.pop(0)

    made = KubeCredentials(load=load, files=[token], reread_s=60, clock=clock)
    made.adopt(await load())
    token.write_text("22")
    assert await made.authorization() == "one"
    clock.now += FILE_LOOK_S
    assert await made.authorization() == "two"
    clock.now += FILE_LOOK_S
    assert await made.authorization() == "two", "nothing has changed"
    token.unlink()
    clock.now += FILE_LOOK_S
    assert await made.authorization() == "two", "it is being replaced"
    token.write_text("333")
    clock.now += FILE_LOOK_S
    assert await made.authorization() == "three"


async def test_a_service_account_is_named_by_its_token():
    """The subject of a JWT; a token without one is named by the configuration."""
    claims = base64.urlsafe_b64encode(b'{"sub":"system:serviceaccount:headgate:binder"}').rstrip(b"=").decode()
    made = KubeCredentials(user="the user 'u' of --kubeconfig")
    made.adopt(loaded(f"Bearer e30.{claims}.c2ln"))
    assert made.user == "system:serviceaccount:headgate:binder"
    made.adopt(loaded("Bearer opaque"))
    assert made.user == "the user 'u' of --kubeconfig"


async def test_a_refused_credential_is_loaded_anew_but_not_in_a_storm(clock):
    """401 renews the credential; one that stays refused is not renewed with every request."""
    made = renewing(clock, loaded("one"), loaded("two"), loaded("two"), loaded("three"))
    clock.now += RENEWAL_INTERVAL_S
    assert await made.refused("one")
    assert await made.refused("one"), "somebody else renewed it meanwhile: worth a repetition"
    assert not await made.refused("two"), "too soon"
    clock.now += RENEWAL_INTERVAL_S
    assert not await made.refused("two"), "the same again: no repetition"
    assert made.renewals == 2


async def test_a_plugin_that_fails_leaves_the_old_credential_in_use(clock, caplog):
    """The old one may still be good; the failure is logged and the plugin tried again later."""
    made = renewing(clock, loaded("one", clock.now + 100), RuntimeError("no network"), loaded("two"))
    clock.now += 50
    with caplog.at_level(logging.WARNING):
        assert await made.authorization() == "one"
        assert await made.authorization() == "one"
    assert (made.renewals, made.renewals_failed) == (0, 1)
    assert "no network" in caplog.text
    clock.now += RENEWAL_INTERVAL_S
    assert await made.authorization() == "two"


async def test_a_plugin_with_short_lived_credentials_is_not_run_for_every_request(clock):
    """An expiry within the margin would be due at once, again and again."""
    made = renewing(clock, loaded("one", clock.now + 5), loaded("two", clock.now + 5))
    assert [await made.authorization() for _ in range(3)] == ["one"] * 3


def kubeconfig(tmp_path, server, user):
    path = tmp_path / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "main",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return resolve(kubeconfig=str(path), environ={})


@pytest.fixture
def patient(monkeypatch):
    """Renewals may follow each other at once."""
    monkeypatch.setattr(module, "RENEWAL_INTERVAL_S", 0.0)


async def test_a_token_that_was_renewed_in_its_file_is_picked_up_after_a_401(fake, tmp_path, patient):
    """The request that was refused is repeated once with the new token, and so is a watch."""
    token = tmp_path / "token"
    token.write_text("old")
    access = kubeconfig(tmp_path, fake.url, {"tokenFile": str(token)})
    fake.script = [
        fake.answer(200),
        fake.status(401, "Unauthorized"),
        fake.answer(200),
        fake.status(401, "Unauthorized"),
        fake.lines({"a": 1}),
        fake.status(401, "Unauthorized"),
    ]
    async with open_transport(access) as transport:
        assert (await transport.request("GET", "/")).status == 200
        token.write_text("new\n")
        assert (await transport.request("GET", "/")).status == 200
        token.write_text("newer")
        async with transport.stream("/watch") as lines:
            assert [line async for line in lines] == [b'{"a": 1}']
        assert (await transport.request("GET", "/")).status == 401
    sent = [seen.headers["Authorization"] for seen in fake.seen]
    assert sent == [f"Bearer {name}" for name in ("old", "old", "new", "new", "newer", "newer")]


async def test_an_exec_plugin_is_run_and_run_again_after_a_401(fake, tmp_path, patient):
    """The plugin's answer goes into the header, through kubernetes-asyncio's own loader."""
    counter = tmp_path / "count"
    script = f"""#!/bin/sh
echo x >> {counter}
n=$(wc -l < {counter} | tr -d ' ')
printf '{{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential",'
printf '"status":{{"token":"run-%s"}}}}' $n
"""
    plugin = tmp_path / "plugin"
    plugin.write_text(script)
    plugin.chmod(0o755)
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": str(plugin), "args": []}}
    fake.script = [fake.status(401, "Unauthorized"), fake.answer(200)]
    async with open_transport(kubeconfig(tmp_path, fake.url, user)) as transport:
        assert (await transport.request("GET", "/")).status == 200
    assert [seen.headers["Authorization"] for seen in fake.seen] == ["Bearer run-1", "Bearer run-2"]


async def test_a_plugin_that_cannot_be_run_is_a_configuration_error(fake, tmp_path):
    """At start there is no old credential to fall back on, so the operator must act."""
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "/no/such", "args": []}}
    with pytest.raises(KubeConfigurationError, match="cannot load the credentials"):
        await load_credentials(kubeconfig(tmp_path, fake.url, user))


async def test_a_server_without_a_kubeconfig_is_verified_against_the_system(anyio_backend):
    """`--server https://…` is never trusted blindly."""
    made = await load_credentials(ClusterAccess(server="https://example.test"))
    assert made.ssl_context is not None
    assert made.ssl_context.verify_mode is ssl.CERT_REQUIRED
    assert await made.authorization() is None
