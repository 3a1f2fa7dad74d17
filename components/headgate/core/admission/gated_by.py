"""
The rules of the annotation that keeps a job or a Workload from admission until others remove its gates.

Each gate is compared with each other one, so there may be `GATES_MAX` of them, where Kueue sets no limit. An object
that was stored with more can be changed otherwise.
"""

from typing import Final

import msgspec

from headgate.core.admission.names import subdomain
from headgate.core.admission.rules import ANNOTATIONS, CREATE, UPDATE, AdmissionRule, Each, ErrorType
from headgate.core.api.names import GATED_BY

NAME_LENGTH_MAX: Final = 63
GATES_MAX: Final = 64

_FIELD: Final = f"metadata.annotations[{GATED_BY}]"
_VALUE: Final = f"{ANNOTATIONS}[?'{GATED_BY}'].orValue('')"
_OLD: Final = f"oldObject.metadata.?annotations[?'{GATED_BY}'].orValue('')"
_PARTS: Final = "%s.split(',').map(g, g.trim())"
_IS_SHORT: Final = f"size({_VALUE}.split(',')) <= {GATES_MAX}"
_GATE: Final = Each("gate", f"({_VALUE} == '' || !({_IS_SHORT}) ? [] : {_PARTS % _VALUE})")
_GATES: Final = ("AdmissionGatedBy",)
_HTTP_PATH: Final = "[A-Za-z0-9/\\\\-._~%!$&\\'()*+,;=:]+"


# Large: a table of rules.
def gated_by() -> tuple[AdmissionRule, ...]:
    """Gates are named once each, as `<domain>/<path>`; later they can only be removed."""
    many = AdmissionRule(
        name="gates-many",
        field=_FIELD,
        holds=_IS_SHORT,
        error=ErrorType.TOO_MANY,
        value=f"size({_VALUE}.split(','))",
        detail=f"must have at most {GATES_MAX} items",
        operations=CREATE,
        gates=_GATES,
    )
    first = "gate.split('/')[0]"
    named = "gate.matches('^[^/]+/.+$')"
    return (
        many,
        msgspec.structs.replace(
            many, name="gates-many-later", holds=f"{_IS_SHORT} || {_VALUE} == {_OLD}", operations=UPDATE
        ),
        AdmissionRule(
            name="gates-added",
            field=_FIELD,
            holds=f"{_OLD} != '' || {_VALUE} == ''",
            error=ErrorType.FORBIDDEN,
            detail="cannot add admission gate after creation",
            operations=UPDATE,
            gates=_GATES,
        ),
        AdmissionRule(
            name="gates-more",
            field=_FIELD,
            when=f"{_OLD} != '' && {_VALUE} != '' && {_IS_SHORT}",
            # A list of one item: what is split is split once.
            holds=f"[{_PARTS % _OLD}].all(old, {_PARTS % _VALUE}.all(g, g in old))",
            error=ErrorType.FORBIDDEN,
            detail="can only remove gates, not add new ones",
            operations=UPDATE,
            gates=_GATES,
        ),
        AdmissionRule(
            name="gate-empty",
            field=_FIELD,
            each=(_GATE,),
            holds="gate != ''",
            value=_VALUE,
            detail="cannot contain empty gate names",
            gates=_GATES,
        ),
        AdmissionRule(
            name="gate-twice",
            field=_FIELD,
            each=(_GATE,),
            holds=f"gate == '' || !{_PARTS % _VALUE}.exists(j, g, j < gate_i && g == gate)",
            value=_VALUE,
            detail_cel="'duplicate gate name: ' + gate",
            gates=_GATES,
        ),
        AdmissionRule(
            name="gate-form",
            field=_FIELD,
            each=(_GATE,),
            when="gate != ''",
            holds=named,
            value="gate",
            detail='must be a domain-prefixed path (such as "acme.io/foo")',
            gates=_GATES,
        ),
        *subdomain(
            AdmissionRule(
                name="gate-domain",
                field=_FIELD,
                each=(_GATE,),
                when=named,
                holds="",
                value=first,
                gates=_GATES,
            ),
            first,
        ),
        AdmissionRule(
            name="gate-path",
            field=_FIELD,
            each=(_GATE,),
            when=named,
            holds=f"gate.matches('^[^/]+/{_HTTP_PATH}$')",
            value="gate",
            detail="Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')",
            gates=_GATES,
        ),
        AdmissionRule(
            name="gate-long",
            field=_FIELD,
            each=(_GATE,),
            when="gate != ''",
            holds=f"size(gate) <= {NAME_LENGTH_MAX}",
            error=ErrorType.TOO_LONG,
            detail=f"may not be more than {NAME_LENGTH_MAX} bytes",
            gates=_GATES,
        ),
    )
