"""What admission defaults and refuses, by the rules alone. `tests/kube/admission` asks real API servers the same."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.admission_cases import QUEUED, Case, cases, found_at, merged

from headgate.core.admission.kinds import TARGETS
from headgate.core.admission.review import AdmissionRequest, Problem, defaulted, problems
from headgate.core.admission.rules import Params
from headgate.core.admission.settings import AdmissionSettings

SETTINGS = AdmissionSettings(frameworks=tuple(each.framework for each in TARGETS if each.framework))
BY_KIND = {each.kind: each for each in TARGETS}


class Facts:
    """A cluster with a LocalQueue `default` in one namespace."""

    def default_of(self, kind: Params, namespace: str) -> dict[str, Any] | None:
        return {} if kind is Params.LOCAL_QUEUE and namespace == QUEUED else None

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:
        return {}


def found_in(case: Case) -> tuple[dict[str, Any], list[Problem]]:
    """The object after the last step that was allowed, and the problems of the one that was not."""
    target, facts = BY_KIND[case.kind], Facts()
    created = AdmissionRequest(object=case.object, namespace=case.namespace)
    obj = defaulted(target, SETTINGS, created, facts).object
    found = problems(
        target,
        SETTINGS,
        AdmissionRequest(object=obj, namespace=case.namespace),
        facts,
    )
    for _, patch in case.steps:
        if found:
            break
        new = merged(obj, patch)
        step = AdmissionRequest(object=new, old=obj, namespace=case.namespace)
        found, obj = problems(target, SETTINGS, step, facts), new
    return obj, found


@pytest.mark.parametrize("case", [each for each in cases() if each.by != "schema"], ids=str)
def test_a_case_is_answered_as_kueue_answers_it(case: Case) -> None:
    """Allowed, refused with this field, or changed like this."""
    obj, found = found_in(case)
    assert [each.field for each in found][:1] == ([case.refused] if case.refused else [])
    for path, value in case.defaulted.items():
        shown = found_at(obj, path)
        assert shown == value or (value is False and shown is None)


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob", "RayService", "SparkApplication"])
@pytest.mark.parametrize("is_on", [True, False])
def test_the_update_that_takes_a_queue_away_is_checked_by_its_gate(kind: str, *, is_on: bool) -> None:
    """ValidateRayAndSparkJobUpdates: without it, what names no queue any more is not looked at (Kueue 0.19)."""
    target = BY_KIND[kind]
    settings = AdmissionSettings(gates={"ValidateRayAndSparkJobUpdates": is_on}, frameworks=(target.framework,))
    metadata = {"name": "j", "namespace": "plain"}
    old = {"metadata": {**metadata, "labels": {"kueue.x-k8s.io/queue-name": "q"}}, "spec": {"suspend": False}}
    new = {"metadata": metadata, "spec": {"suspend": False}}
    step = AdmissionRequest(object=new, old=old, namespace="plain")
    fields = [each.field for each in problems(target, settings, step, Facts())]
    assert ("metadata.labels[kueue.x-k8s.io/queue-name]" in fields) is is_on
