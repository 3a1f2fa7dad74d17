"""
Transformations: what quota counts instead of what pods request (`resources` of the configuration).

An operator excludes resources by the prefixes of their names, and turns requests for one resource into requests for
others: a MIG slice into compute units and memory, memory into credits (KEP-2937). `requests` calls it with the exact
effective request of one pod and rounds the result. Nodes still count what the pods request.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction

from headgate.core.kubernetes.quantities import parse_quantity
from headgate.events.configuration import ResourceTransformation


def without_excluded(requests: Mapping[str, Fraction], prefixes: Sequence[str]) -> Mapping[str, Fraction]:
    """The requests without the resources whose names begin with one of the prefixes."""
    if not prefixes:
        return requests
    return {resource: value for resource, value in requests.items() if not resource.startswith(tuple(prefixes))}


def transformed(
    requests: Mapping[str, Fraction], transformations: Sequence[ResourceTransformation]
) -> Mapping[str, Fraction]:
    """
    The requests after all transformations. They are not chained: each applies to the original requests.

    An output is the request for the input, times the request for `multiplyBy` where there is one, times the factor of
    the output. What several transformations produce of one resource is summed; a sum below 0 (factors may be negative)
    counts as 0, so it does not reduce a request of that name. Of two transformations of one input the later counts.
    """
    by_input = {each.input: each for each in transformations if each.input in requests}
    if not by_input:
        return requests
    total = {
        resource: value
        for resource, value in requests.items()
        if resource not in by_input or by_input[resource].strategy != "Replace"
    }
    made: dict[str, Fraction] = {}
    for resource, transformation in by_input.items():
        value = requests[resource] * requests.get(transformation.multiply_by, Fraction(1))
        for output, factor in transformation.outputs.items():
            made[output] = made.get(output, Fraction(0)) + value * parse_quantity(factor)
    for resource, value in made.items():
        total[resource] = total.get(resource, Fraction(0)) + max(Fraction(0), value)
    return total
