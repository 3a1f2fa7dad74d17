"""The tables of rules: each rule can be evaluated, and becomes a part of a policy or says why it cannot."""

import re
from collections.abc import Mapping
from typing import Any

import pytest

from headgate.core.admission.gated_by import gated_by
from headgate.core.admission.kinds import JOBS, TARGETS
from headgate.core.admission.pods import POD
from headgate.core.admission.policies import policies
from headgate.core.admission.review import COMPUTED, FUNCTIONS, AdmissionRequest, defaulted, problems
from headgate.core.admission.rules import AdmissionTarget, Params
from headgate.core.admission.settings import AdmissionSettings, settings_of
from headgate.core.admission.webhooks import configurations
from headgate.core.api.names import ADMISSION_GATE, GATED_BY, POD_PARENT, QUEUE_LABEL
from headgate.core.config.frameworks import SUPPORTED
from headgate.core.kubernetes.cel import compiled
from headgate.events.objects import LabelSelector

NAMESPACE = "headgate-system"
ALL = AdmissionSettings(frameworks=tuple(each.framework for each in JOBS))
DOCUMENT = {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration"}


class NoFacts:
    """A cluster without queues called `default`."""

    def default_of(self, kind: Params, namespace: str) -> dict[str, Any] | None:
        return None

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        return {}


def texts_of(target: AdmissionTarget) -> list[str]:
    """All expressions of a kind."""
    rules = [
        text
        for each in target.rules
        for text in (each.holds, each.when, each.value, each.detail_cel, *(loop.of for loop in each.each))
    ]
    defaults = [
        text
        for each in target.defaults
        for text in (each.when, *(part for change in each.changes for part in (change.value, change.when)))
    ]
    return [text for text in (*rules, *defaults, *(each.expression for each in target.variables)) if text]


@pytest.mark.parametrize("target", TARGETS, ids=lambda each: each.kind)
def test_every_expression_is_covered(target: AdmissionTarget) -> None:
    """It compiles, and reads no variable that its kind does not define."""
    known = {each.name for each in target.variables}
    for text in texts_of(target):
        compiled(text)
        assert set(re.findall(r"variables\.(\w+)", text)) <= known, text


@pytest.mark.parametrize("target", TARGETS, ids=lambda each: each.kind)
def test_every_rule_has_a_name_and_words(target: AdmissionTarget) -> None:
    """Names are unique in a kind, and nothing is refused without saying why."""
    names = [each.name for each in target.rules]
    assert len(names) == len(set(names))
    silent = {"Duplicate value", "Not found"}
    assert all(each.detail or each.detail_cel or each.error.value in silent or each.not_in_cel for each in target.rules)
    assert {each.not_in_cel for each in target.rules if each.not_in_cel} <= set(FUNCTIONS)
    assert {each.not_in_cel for each in target.defaults if each.not_in_cel} <= set(COMPUTED)


def test_every_kind_that_headgate_runs_has_rules() -> None:
    """By the names of Kueue's frameworks."""
    assert set(SUPPORTED) <= {each.framework for each in JOBS}


def test_both_ways_are_about_the_same_requests() -> None:
    """Each rule of a webhook configuration has a policy with the same groups, resources and operations."""
    made = policies(TARGETS, ALL, namespace=NAMESPACE, labels={})
    asked = configurations(TARGETS, namespace=NAMESPACE, service="s", labels={}, annotations={})
    for way, prefix in zip(asked, ("Mutating", "Validating"), strict=True):
        covered = {
            (rule["apiGroups"][0], resource, operation)
            for each in made
            if each["kind"] == f"{prefix}AdmissionPolicy"
            for rule in each["spec"]["matchConstraints"]["resourceRules"]
            for resource in rule["resources"]
            for operation in rule["operations"]
        }
        for webhook in way["webhooks"]:
            for rule in webhook["rules"]:
                wanted = {(rule["apiGroups"][0], r, o) for r in rule["resources"] for o in rule["operations"]}
                # Partial admission is on: a policy that removes minimum counts would have nothing to do.
                assert wanted <= covered or rule["resources"] == ["workloads"]


def names(settings: AdmissionSettings) -> set[str]:
    return {each["metadata"]["name"] for each in policies(TARGETS, settings, namespace=NAMESPACE, labels={})}


def test_a_gate_that_is_off_leaves_its_rules_out() -> None:
    """And one that is on brings them in."""
    off = settings_of({**DOCUMENT, "featureGates": {"WorkloadPriorityClassDefaulting": False}})
    on = settings_of(DOCUMENT)
    assert {each for each in names(on) - names(off) if "jobs" in each} == {
        "headgate-default-jobs-1-default-priority-class"
    }


def test_integrations_that_are_off_have_no_policies() -> None:
    """Only those of the Configuration are there, and Kueue's own kinds."""
    found = names(AdmissionSettings())
    assert any(each.startswith("headgate-validate-jobs") for each in found)
    assert not any("pytorchjobs" in each for each in found)
    assert any("clusterqueues" in each for each in found)


def of_frameworks(*frameworks: str) -> AdmissionSettings:
    return settings_of({**DOCUMENT, "integrations": {"frameworks": list(frameworks)}})


def defaulted_pod(settings: AdmissionSettings, metadata: dict[str, Any]) -> dict[str, Any]:
    """A pod as it is stored."""
    pod = {"metadata": metadata, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    created = AdmissionRequest(object=pod, namespace="a", ancestor_is_managed=False)
    return defaulted(POD, settings, created, NoFacts()).object


def test_deployment_implies_pod_for_the_pods_of_deployments() -> None:
    """They get the gate of admission by the webhook and by policies; a pod of its own waits for nothing."""
    settings = of_frameworks("deployment")
    of_deployment = defaulted_pod(settings, {"annotations": {POD_PARENT: "deployment"}, "labels": {QUEUE_LABEL: "q"}})
    assert {"name": ADMISSION_GATE} in of_deployment["spec"]["schedulingGates"]
    assert "schedulingGates" not in defaulted_pod(settings, {"labels": {QUEUE_LABEL: "q"}})["spec"]
    found = policies([POD], settings, namespace=NAMESPACE, labels={})
    conditions = [each["spec"]["matchConditions"] for each in found if "matchConditions" in each["spec"]]
    assert conditions
    assert all(POD_PARENT in each[-1]["expression"] for each in conditions)


def test_pods_that_are_enabled_themselves_all_wait() -> None:
    """With or without the owners that imply them."""
    settings = of_frameworks("deployment", "pod")
    assert defaulted_pod(settings, {"labels": {QUEUE_LABEL: "q"}})["spec"]["schedulingGates"]


def test_gates_of_a_stored_object_that_has_too_many_do_not_stop_its_updates() -> None:
    """They may only not be changed to as many others."""
    before = {"metadata": {"annotations": {GATED_BY: ",".join(f"a.io/{each}" for each in range(99))}}}
    after = {"metadata": {"annotations": {GATED_BY: ",".join(f"a.io/{each}" for each in range(98))}}}
    few = {"metadata": {"annotations": {GATED_BY: "a.io/1"}}}

    def refused(new: dict[str, Any]) -> list[str]:
        update = AdmissionRequest(object=new, old=before)
        target = AdmissionTarget(group="g", version="v", kind="K", plural="ks", rules=gated_by())
        return [
            each.rule
            for each in problems(target, AdmissionSettings(gates={"AdmissionGatedBy": True}), update, NoFacts())
        ]

    assert (refused(before), refused(few), refused(after)) == ([], [], ["gates-many-later"])


def test_defaulting_of_queues_follows_the_selector_of_namespaces() -> None:
    """The binding selects; suspension of Jobs with a queue does not."""
    settings = AdmissionSettings(namespaces=LabelSelector(match_labels={"team": "a"}))
    bindings = {
        each["metadata"]["name"]: each["spec"]
        for each in policies(TARGETS, settings, namespace=NAMESPACE, labels={})
        if each["kind"] == "MutatingAdmissionPolicyBinding"
    }
    queue = bindings["headgate-default-jobs-0-default-queue"]
    assert queue["matchResources"] == {"namespaceSelector": {"matchLabels": {"team": "a"}}}
    assert queue["paramRef"] == {"name": "default", "parameterNotFoundAction": "Allow"}
    assert "matchResources" not in bindings["headgate-default-jobs-2-suspend"]
