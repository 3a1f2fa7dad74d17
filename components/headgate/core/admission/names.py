"""
The formats of names as CEL: labels, subdomains, annotations. Patterns and wording are Kubernetes' (apimachinery).

Each function makes the rules of one value: one for each thing that can be wrong with it.
"""

from typing import Final

import msgspec

from headgate.core.admission.rules import AdmissionRule

_NAME: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_SUBDOMAIN: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_SUBDOMAIN_SHOWN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_CHARACTERS: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character"
)
_KEY_FORM: Final = (
    f"{_CHARACTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{_NAME}')"
)
_VALUE_FORM: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'({_NAME})?')"
)
_SUBDOMAIN_FORM: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN_SHOWN}')"
)


def _at_most(count: int) -> str:
    return f"must be no more than {count} bytes"


def _variants(base: AdmissionRule, conditions: dict[str, tuple[str, str]]) -> tuple[AdmissionRule, ...]:
    return tuple(
        msgspec.structs.replace(base, name=f"{base.name}-{suffix}", holds=holds, detail=detail)
        for suffix, (holds, detail) in conditions.items()
    )


def label_key(base: AdmissionRule, value: str) -> tuple[AdmissionRule, ...]:
    """The rules of a label's key: an optional prefix and a name. `base` is the rule without condition and detail."""
    parts = f"{value}.split('/')"
    one_or_two, two = f"size({parts}) <= 2", f"size({parts}) == 2"
    name = f"{parts}[size({parts}) - 1]"
    return _variants(
        base,
        {
            "slashes": (
                one_or_two,
                f"a valid label key {_KEY_FORM} with an optional DNS subdomain prefix and '/' "
                "(e.g. 'example.com/MyName')",
            ),
            "prefix-empty": (f"!({two}) || {parts}[0] != ''", "prefix part must be non-empty"),
            "prefix": (
                f"!({two}) || {parts}[0] == '' || {parts}[0].matches('^{_SUBDOMAIN}$')",
                f"prefix part {_SUBDOMAIN_FORM}",
            ),
            "name-empty": (f"!({one_or_two}) || {name} != ''", "name part must be non-empty"),
            "name-long": (f"!({one_or_two}) || size({name}) <= 63", f"name part {_at_most(63)}"),
            "name": (f"!({one_or_two}) || {name}.matches('^{_NAME}$')", f"name part {_KEY_FORM}"),
        },
    )


def label_value(base: AdmissionRule, value: str) -> tuple[AdmissionRule, ...]:
    """The rules of a label's value."""
    return _variants(
        base,
        {
            "long": (f"size({value}) <= 63", _at_most(63)),
            "form": (f"{value}.matches('^({_NAME})?$')", _VALUE_FORM),
        },
    )


def subdomain(base: AdmissionRule, value: str) -> tuple[AdmissionRule, ...]:
    """The rules of the name of an object of a custom resource."""
    return _variants(
        base,
        {
            "long": (f"size({value}) <= 253", _at_most(253)),
            "form": (f"{value}.matches('^{_SUBDOMAIN}$')", _SUBDOMAIN_FORM),
        },
    )
