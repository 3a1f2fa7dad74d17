"""The rules of the annotation that keeps a job or a Workload from admission until others remove its gates."""

from typing import Final

from headgate.core.admission.names import subdomain
from headgate.core.admission.rules import ANNOTATIONS, UPDATE, AdmissionRule, Each, ErrorType

ANNOTATION: Final = "kueue.x-k8s.io/admission-gated-by"
NAME_LENGTH_MAX: Final = 63

_FIELD: Final = f"metadata.annotations[{ANNOTATION}]"
_VALUE: Final = f"{ANNOTATIONS}[?'{ANNOTATION}'].orValue('')"
_OLD: Final = f"oldObject.metadata.?annotations[?'{ANNOTATION}'].orValue('')"
_PARTS: Final = "%s.split(',').map(g, g.trim())"
_GATE: Final = Each("gate", f"({_VALUE} == '' ? [] : {_PARTS % _VALUE})")
_GATES: Final = ("AdmissionGatedBy",)
_HTTP_PATH: Final = "[A-Za-z0-9/\\\\-._~%!$&\\'()*+,;=:]+"


# Large: a table of rules.
def gated_by() -> tuple[AdmissionRule, ...]:
    """Gates are named once each, as `<domain>/<path>`; later they can only be removed."""
    first = "gate.split('/')[0]"
    named = "gate.matches('^[^/]+/.+$')"
    return (
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
            when=f"{_OLD} != '' && {_VALUE} != ''",
            holds=f"{_PARTS % _VALUE}.all(g, g in {_PARTS % _OLD})",
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
