"""Admission policies on a real API server, which goes by them a while after they were made."""

import itertools
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

from tests.support.waiting import until

from headgate.adapters.kubernetes.client import KubeClient
from headgate.adapters.kubernetes.crds.render import MANAGED_BY, MANAGER
from headgate.adapters.kubernetes.errors import ApiError
from headgate.adapters.kubernetes.resources import CONFIG_MAPS, Resource
from headgate.core.admission.policies import policies
from headgate.core.admission.rules import AdmissionRule, AdmissionTarget, Default, FieldChange
from headgate.core.admission.settings import AdmissionSettings
from headgate.processes.webhook.installing import ADMISSION_LABEL, Way, install_admission

Json = dict[str, Any]
NAMESPACE: Final = "headgate-system"
LABELS: Final = {MANAGED_BY: MANAGER, ADMISSION_LABEL: Way.POLICY.value}

_numbers = itertools.count(1)


@asynccontextmanager
async def in_effect(client: KubeClient, made: Sequence[Json], *kinds: Resource) -> AsyncIterator[None]:
    """
    Make these all of our policies for as long as the block runs, which begins when the API server goes by them.

    It takes policies and bindings in as they are made, and goes by one list of what it has at a time (policy_source.go
    of Kubernetes). So it goes by all of them once it goes by the last: two of the test's own, a default and a refusal.
    `kinds` are those with new definitions; their objects are answered 503 until the policies know the schema.
    """
    name = f"last-{next(_numbers)}"
    last = policies([_refusing(name)], AdmissionSettings(), namespace=NAMESPACE, labels=LABELS)
    try:
        await _install(client, [*made, *last])
        await until(partial(_is_refused, client, name))
        for kind in kinds:
            await until(partial(_is_known, client, kind))
        yield
    finally:
        await _install(client, [])


async def _install(client: KubeClient, made: Sequence[Json]) -> None:
    async for _ in install_admission(client, made):
        pass


def _refusing(name: str) -> AdmissionTarget:
    """Rules by which the ConfigMap of a name gets data, and is refused for it."""
    is_it = f"object.metadata.name == '{name}'"
    return AdmissionTarget(
        group=CONFIG_MAPS.group,
        version=CONFIG_MAPS.version,
        kind=CONFIG_MAPS.kind,
        plural=CONFIG_MAPS.plural,
        defaults=(Default(name=name, when=is_it, changes=(FieldChange(path=("data",), value="{'set': 'yes'}"),)),),
        rules=(AdmissionRule(name=name, field="data", when=is_it, holds="!has(object.data)"),),
    )


async def _is_refused(client: KubeClient, name: str) -> bool:
    try:
        await client.create(CONFIG_MAPS, {"metadata": {"name": name}}, "default", dry_run=True)
    except ApiError as error:
        return "data: Invalid value" in error.message
    return False


async def _is_known(client: KubeClient, kind: Resource) -> bool:
    body = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": "probe"}, "spec": {}}
    try:
        await client.create(kind, body, "default" if kind.namespaced else None, dry_run=True)
    except ApiError as error:
        return error.status != 503
    return True
