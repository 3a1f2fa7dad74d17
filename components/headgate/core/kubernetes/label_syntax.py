"""What the API server accepts as the key and as the value of a label (apimachinery's validation of label names)."""

import re
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_LEN_MAX: Final = 63
_PREFIX_LEN_MAX: Final = 253


def why_no_label_key(key: str) -> str:
    """Why this is no key of a label; empty when it is one."""
    prefix, slash, name = key.rpartition("/")
    if slash and not (_PREFIX.fullmatch(prefix) and len(prefix) <= _PREFIX_LEN_MAX):
        return f"the prefix of the key {key!r} must be a DNS name of at most {_PREFIX_LEN_MAX} characters"
    if not _NAME.fullmatch(name) or len(name) > _NAME_LEN_MAX:
        return f"the key {key!r} must be at most {_NAME_LEN_MAX} letters, digits, '-', '_' or '.', ends excepted"
    return ""


def why_no_label_value(value: str) -> str:
    """Why this is no value of a label; empty when it is one."""
    if value and (not _NAME.fullmatch(value) or len(value) > _NAME_LEN_MAX):
        return f"the value {value!r} must be at most {_NAME_LEN_MAX} letters, digits, '-', '_' or '.', ends excepted"
    return ""
