"""The page of settings: every key of `headgate.yaml` with its type, default and environment variable."""

from typing import Any, Final

import msgspec

from headgate.processes.runtime.settings import PREFIX, SECTIONS, Settings
from tools.reference.text import code, docstring, page, table

INTRODUCTION: Final = """
How each process and command runs: where the broker and the API server are, what is logged and served. One YAML file
(`headgate.yaml` in the working directory, or the one that `--config` or `HEADGATE_CONFIG` names), over it the
environment, over both the flags of the command line. An unknown key or a value of the wrong type is refused with one
line, and exit code 2.

```yaml
cell: main
nats: {url: "nats://nats.headgate-system.svc:4222"}
log: {format: json}
```

What decides who is admitted is not here but in [Kueue's Configuration](configuration.md), which is part of the log.
"""


def settings_page() -> str:
    """`docs/reference/settings.md`."""
    plain = [field for field in msgspec.structs.fields(Settings) if field.name not in SECTIONS]
    parts = [f"## Top level\n\n{docstring(Settings)}\n\n{_fields(plain, '')}"]
    for name, section in SECTIONS.items():
        parts.append(f"## {name}\n\n{docstring(section)}\n\n{_fields(msgspec.structs.fields(section), name)}")
    return page("Settings", INTRODUCTION, *parts)


def _fields(fields: Any, section: str) -> str:
    rows = []
    for field in fields:
        variable = "_".join(part for part in (PREFIX.rstrip("_"), section, field.name) if part).upper()
        key = f"{section}.{field.name}" if section else field.name
        rows.append((code(key), _type(field.type), code(msgspec.json.encode(field.default).decode()), code(variable)))
    return table(("key", "type", "default", "environment"), rows)


def _type(annotation: Any) -> str:
    """As in the JSON Schema of the field: the type, its values or bounds."""
    schema = msgspec.json.schema(annotation)
    alternatives = schema.get("anyOf", [schema])
    return " or ".join(_one(each) for each in alternatives if each.get("type") != "null")


def _one(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(code(value) for value in schema["enum"])
    bounds = [
        f"{word} {schema[key]}"
        for key, word in (("minimum", "at least"), ("exclusiveMinimum", "more than"), ("maximum", "at most"))
        if key in schema
    ]
    return " ".join([str(schema["type"]), *([", ".join(bounds)] if bounds else [])])
