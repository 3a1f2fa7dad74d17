"""
The cluster that `headgate apply`, `get` and `delete` use, and the names of objects there.

Flags take precedence, then KUBECONFIG, as for kubectl, then the cell that runs here, then kubectl's other defaults.
Kinds are looked up in the server's own discovery, so that all its names work (`cq`, `clusterqueue`, `ClusterQueue`);
the plural names that Headgate uses work without discovery.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.http_transport import open_transport
from headgate.adapters.kubernetes.kubeconfig import ClusterAccess, resolve
from headgate.adapters.kubernetes.resources import RESOURCES, Resource
from headgate.cli.cell import find
from headgate.cli.output import CliError


def access_of(kubeconfig: str | None, data: Path | None, cell: str | None) -> ClusterAccess:
    """
    The selected cluster.

    Raises ConfigurationError; CliError when a cell was named and does not exist or does not run.
    """
    if kubeconfig is not None:
        return resolve(kubeconfig=kubeconfig)
    is_named = data is not None or (cell is not None and cell != os.environ.get("HEADGATE_CELL"))
    if os.environ.get("KUBECONFIG") and not is_named:
        return resolve()
    try:
        found = find(data, cell)
    except CliError:
        if data is not None or cell is not None:
            raise
        return resolve()
    if not found.running:
        if data is not None or cell is not None:
            raise CliError(f"cell {found.info.cell} ({found.data}) does not run: start it with `headgate up`")
        return resolve()
    return resolve(kubeconfig=found.info.kubeconfig)


@asynccontextmanager
async def open_cluster(access: ClusterAccess) -> AsyncIterator["ClusterObjects"]:
    """The cluster's objects, by any of their names."""
    async with open_transport(access) as transport:
        yield ClusterObjects(KubeClient(transport), access.namespace)


class _Listed(msgspec.Struct, kw_only=True, rename="camel"):
    name: str
    kind: str
    namespaced: bool
    singular_name: str = ""
    short_names: tuple[str, ...] = ()


class _Resources(msgspec.Struct, kw_only=True):
    resources: tuple[_Listed, ...] = ()


class _Version(msgspec.Struct, kw_only=True, rename="camel"):
    group_version: str
    version: str


class _Group(msgspec.Struct, kw_only=True, rename="camel"):
    name: str
    versions: tuple[_Version, ...]
    preferred_version: _Version | None = None


class _Groups(msgspec.Struct, kw_only=True):
    groups: tuple[_Group, ...] = ()


class ClusterObjects:
    """A client, the namespace to work in, and the kinds that the server has."""

    def __init__(self, client: KubeClient, namespace: str) -> None:
        self.client = client
        self.namespace = namespace
        self._versions: dict[str, dict[str, _Listed]] = {}

    async def by_kind(self, api_version: str, kind: str) -> Resource | None:
        """The resource of a manifest's apiVersion and kind; None when the server has none."""
        for resource in RESOURCES.values():
            if (resource.api_version, resource.kind) == (api_version, kind):
                return resource
        listed = await self._version(api_version)
        found = next((each for each in listed.values() if each.kind == kind), None)
        return _resource(api_version, found) if found is not None else None

    async def by_name(self, name: str) -> Resource:
        """
        The resource for a word on the command line: plural, singular, short or kind, in any case.

        Raises CliError when the server has no match.
        """
        word = name.lower()
        if word in RESOURCES:
            return RESOURCES[word]
        for api_version in await self._all_versions():
            for each in (await self._version(api_version)).values():
                if word in (each.name, each.singular_name, each.kind.lower(), *each.short_names):
                    return RESOURCES.get(each.name) or _resource(api_version, each)
        raise CliError(f"the server doesn't have a resource type {name!r}")

    async def names_of_kinds(self) -> list[str]:
        """The plural names of all kinds that the server has."""
        found = [await self._version(each) for each in await self._all_versions()]
        return list(dict.fromkeys(name for version in found for name in version))

    async def _all_versions(self) -> list[str]:
        groups = msgspec.json.decode(await self.client.request("GET", "/apis"), type=_Groups)
        preferred = [group.preferred_version or group.versions[0] for group in groups.groups if group.versions]
        return ["v1", *(version.group_version for version in preferred)]

    async def _version(self, api_version: str) -> dict[str, _Listed]:
        if api_version not in self._versions:
            from headgate.adapters.kubernetes.errors import ApiError

            path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
            try:
                body = await self.client.request("GET", path)
            except ApiError as error:
                if not error.is_not_found:
                    raise
                body = b"{}"
            found = msgspec.json.decode(body, type=_Resources)
            self._versions[api_version] = {each.name: each for each in found.resources if "/" not in each.name}
        return self._versions[api_version]


def _resource(api_version: str, listed: _Listed) -> Resource:
    group, _, version = api_version.rpartition("/")
    return Resource(group=group, version=version, plural=listed.name, kind=listed.kind, namespaced=listed.namespaced)
