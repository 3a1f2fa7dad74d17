"""The rules of RBAC are what the processes need: nothing was refused, and no right is unused."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
import yaml
from tests.kube.e2e.cells import MANIFESTS, NAMESPACE, Deployment

from headgate.core.api.job_kinds import JOB_KINDS
from headgate.processes.entry import processes

pytestmark = pytest.mark.anyio


PLACEMENT = "-placement"
"""Ends the names of the roles that matter only in a cell with a KubeSchedulerConfiguration."""

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete")


class Use(NamedTuple):
    """What a user may do, or has done. `resource` with its subresource, as in a rule."""

    process: str
    group: str
    resource: str
    verb: str


def granted(*, placement: bool = True) -> set[Use]:
    """Every single permission of the ClusterRoles and Roles, which are named after the processes."""
    return {
        Use(role["metadata"]["name"].removeprefix("headgate-").removesuffix(PLACEMENT), group, resource, verb)
        for role in yaml.safe_load_all((MANIFESTS / "rbac.yaml").read_text())
        if role["kind"] in ("ClusterRole", "Role")
        if placement or not role["metadata"]["name"].endswith(PLACEMENT)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def requested(deployment: Deployment) -> Iterator[tuple[Use, int]]:
    """The requests of the processes, with the HTTP status of the response."""
    prefix = f"system:serviceaccount:{NAMESPACE}:"
    for line in deployment.plane.audit_lines():
        if line.user.startswith(prefix) and line.resource:
            resource = f"{line.resource}/{line.subresource}" if line.subresource else line.resource
            yield Use(line.user.removeprefix(prefix), line.group, resource, line.verb), line.code


def test_only_processes_that_speak_to_the_api_server_have_permissions() -> None:
    """A process that uses the log alone gets no token and no rule."""
    speaking = {each.name for each in processes().values() if each.kubernetes} | {"snapshotter"}  # for its read side
    assert {use.process for use in granted()} == speaking
    accounts = list(yaml.safe_load_all((MANIFESTS / "service-accounts.yaml").read_text()))
    with_token = {each["metadata"]["name"] for each in accounts if each.get("automountServiceAccountToken", True)}
    assert with_token == speaking


@pytest.mark.kube
async def test_no_request_was_refused_for_want_of_a_rule(deployment: Deployment) -> None:
    """Every process ran under its own token; a 403 would be a missing rule."""
    refused = {use for use, code in requested(deployment) if code in (401, 403)}
    assert refused == set()


@pytest.mark.kube
async def test_every_rule_was_used(deployment: Deployment, request: pytest.FixtureRequest) -> None:
    """A permission that no request of the whole run needed is one too many, but for kinds that are optional."""
    modules = {item.path.name for item in request.session.items}
    if not {"test_admission.py", "test_end_to_end.py", "test_read_side.py", "test_takeover.py"} <= modules:
        pytest.skip("only the whole run tells which rules are needed: pytest -m kube tests/kube/e2e")
    requests = list(requested(deployment))
    used = {use for use, _ in requests}
    # What the API server does not serve is listed in vain, and never watched.
    unserved = {(use.group, use.resource) for use, code in requests if use.verb == "list" and code == 404}
    optional = {kind.group for kind in JOB_KINDS if kind.optional} | {"autoscaling.x-k8s.io"}
    unused = {
        use
        for use in granted(placement=False) - used
        if use.group not in optional and (use.group, use.resource) not in unserved
    }
    if not any(use.resource == "provisioningrequests" and use.verb == "create" for use in used):
        # Its definition comes from a Go module. Without one nobody makes a request.
        unused -= {Use("binder", "", "podtemplates", verb) for verb in VERBS}
        unused.discard(Use("binder", "kueue.x-k8s.io", "workloads", "get"))
    assert unused == set()
