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


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("1e9223372036854775807", ONE // 10),
        ("1e4294967298", 100 * ONE),
        ("9e999999999", (2**63 - 1) * ONE),
        ("-9E+999999999", -(2**63 - 1) * ONE),
        ("0e999999999", 0),
        ("1e-999999999", 1),
        ("-1e-999999999", 0),
    ],
)
def test_an_exponent_costs_nothing_however_large(text, amount):
    """Its low 32 bits count, as in Go; what is beyond all amounts is the most there is, what is finer the finest."""
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
