"""Quantities are exact, in billionths."""

import pytest

from headgate.testing.cluster.quantity import ONE, pod_requests, quantity


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1", ONE),
        ("500m", ONE // 2),
        ("4Gi", 4 * 2**30 * ONE),
        ("1.5Ki", 1536 * ONE),
        ("2e3", 2000 * ONE),
        ("1E", 10**18 * ONE),
        ("-3k", -3000 * ONE),
        ("1n", 1),
        ("0.1n", 1),
        (7, 7 * ONE),
        (0.25, ONE // 4),
    ],
)
def test_each_form_of_a_quantity(text, amount):
    """Binary and decimal suffixes, exponents, numbers; finer than a billionth is rounded up."""
    assert quantity(text) == amount


def test_a_pod_asks_for_the_larger_of_start_and_run():
    """Containers add up, an init container counts alone, a sidecar runs beside both, overhead comes on top."""

    def container(cpu, **more):
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "initContainers": [container("1", restartPolicy="Always"), container("4")],
        "containers": [container("1"), container("500m")],
        "overhead": {"cpu": "250m"},
    }
    assert pod_requests(spec) == {"cpu": 5 * ONE + ONE // 4, "pods": ONE}
