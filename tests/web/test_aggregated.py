"""The aggregator of the API server is whom its ConfigMap says, and names callers in the headers that it says."""

from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from multidict import CIMultiDict

from headgate.web.access import Caller, Right, UnauthorizedError
from headgate.web.aggregated import FrontProxy, FrontProxyAccess, NoFrontProxyError, front_proxy_of

pytestmark = pytest.mark.anyio


class Others:
    """Callers with a token."""

    async def caller(self, request: web.Request) -> Caller | None:
        return Caller(username="by-token")

    async def require(self, caller: Caller | None, right: Right) -> None: ...


def request(name: str | None, *headers: tuple[str, str]) -> Any:
    """A request over TLS, with a verified certificate of this name or without one."""
    certificate = {} if name is None else {"subject": ((("commonName", name),),)}
    tls = SimpleNamespace(getpeercert=lambda: certificate)
    transport = SimpleNamespace(get_extra_info=lambda _: tls)
    return SimpleNamespace(transport=transport, headers=CIMultiDict(headers))


CONFIG = {
    "requestheader-client-ca-file": "PEM",
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}
NAMED = (
    ("X-Remote-User", "jane"),
    ("X-Remote-Uid", "u-1"),
    ("X-Remote-Group", "dev"),
    ("X-Remote-Group", "system:authenticated"),
    ("X-Remote-Extra-Example.com%2fScopes", "read"),
    ("X-Remote-Extra-Example.com%2fScopes", "write"),
)


async def test_the_front_proxy_names_user_uid_groups_and_extra() -> None:
    """Keys of extra are in lower case and escaped; values repeat."""
    access = FrontProxyAccess(front_proxy_of({"data": CONFIG}), Others())
    assert await access.caller(request("front-proxy-client", *NAMED)) == Caller(
        username="jane",
        uid="u-1",
        groups=("dev", "system:authenticated"),
        extra={"example.com/scopes": ("read", "write")},
    )


@pytest.mark.parametrize("name", [None, "", "somebody"])
async def test_headers_of_others_are_not_read(name: str | None) -> None:
    """Without a certificate, or with one of another name, a caller needs a token."""
    access = FrontProxyAccess(front_proxy_of({"data": CONFIG}), Others())
    assert await access.caller(request(name, *NAMED)) == Caller(username="by-token")


async def test_a_front_proxy_that_names_nobody_is_refused() -> None:
    """An empty name would be everybody's."""
    access = FrontProxyAccess(front_proxy_of({"data": CONFIG}), Others())
    with pytest.raises(UnauthorizedError, match="names no user in X-Remote-User"):
        await access.caller(request("front-proxy-client", ("X-Remote-User", "")))


async def test_without_allowed_names_every_certificate_of_the_authority_is_the_front_proxy() -> None:
    """As in kube-apiserver."""
    access = FrontProxyAccess(FrontProxy(ca="PEM"), Others())
    assert await access.caller(request("anybody", ("X-Remote-User", "jane"))) == Caller(username="jane")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (None, "has no requestheader-client-ca-file: the API server runs without an aggregation layer"),
        ({**CONFIG, "requestheader-allowed-names": "front-proxy"}, "requestheader-allowed-names is no list of names"),
    ],
)
def test_a_config_map_that_says_nothing_is_named(data: dict[str, str] | None, said: str) -> None:
    """The server tries again later."""
    with pytest.raises(NoFrontProxyError, match=said):
        front_proxy_of({"data": data})
