"""
What a rule is: a place in the object, a condition on it, and the error when it does not hold.

Expressions are CEL over `object`, `oldObject` (null on create), `params` (see `Params`), the variables of `each`, and
`variables.X`, which the kind defines. Errors have the types and the wording of Kubernetes' field errors.
"""

import enum
from typing import Final

import msgspec

MANAGES_UNNAMED: Final = "manageJobsWithoutQueueName"
"""Among gates: the field of the Configuration."""
ANNOTATIONS: Final = "object.metadata.?annotations"
LABELS: Final = "object.metadata.?labels"


class AdmissionOperation(enum.StrEnum):
    """The operation that is admitted."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"


BOTH: Final = (AdmissionOperation.CREATE, AdmissionOperation.UPDATE)
CREATE: Final = (AdmissionOperation.CREATE,)
UPDATE: Final = (AdmissionOperation.UPDATE,)


class ErrorType(enum.StrEnum):
    """The types of Kubernetes' field errors, as they are worded. `causes` of a Status name them without spaces."""

    INVALID = "Invalid value"
    REQUIRED = "Required value"
    FORBIDDEN = "Forbidden"
    DUPLICATE = "Duplicate value"
    NOT_SUPPORTED = "Unsupported value"
    NOT_FOUND = "Not found"
    TOO_LONG = "Too long"
    TOO_MANY = "Too many"

    @property
    def reason(self) -> str:
        """The reason of a cause: `FieldValueInvalid`."""
        return _REASONS[self]


_REASONS: Final = {
    ErrorType.INVALID: "FieldValueInvalid",
    ErrorType.REQUIRED: "FieldValueRequired",
    ErrorType.FORBIDDEN: "FieldValueForbidden",
    ErrorType.DUPLICATE: "FieldValueDuplicate",
    ErrorType.NOT_SUPPORTED: "FieldValueNotSupported",
    ErrorType.NOT_FOUND: "FieldValueNotFound",
    ErrorType.TOO_LONG: "FieldValueTooLong",
    ErrorType.TOO_MANY: "FieldValueTooMany",
}


class Params(enum.Enum):
    """An object that a rule reads: the one called `default`. Without it the rule does not apply."""

    NONE = ""
    LOCAL_QUEUE = "localqueues"
    """In the namespace of the object."""
    PRIORITY_CLASS = "workloadpriorityclasses"


class Each(msgspec.Struct, frozen=True):
    """
    A loop over the items `of`: the rule is checked for each `variable`.

    `<variable>_i` is the index, or in a map the key. In the field of the rule it is the next `[]`, or `key` is.
    """

    variable: str
    of: str
    key: str = ""

    @property
    def index(self) -> str:
        """The variable of the index."""
        return f"{self.variable}_i"


class AdmissionRule(msgspec.Struct, frozen=True, kw_only=True):
    """
    One rule. `holds` is the condition; with `when` it is checked only where that is true.

    `value` is the expression of the bad value that the error shows; `detail` is the text of the error, or `detail_cel`
    the expression of it. All `gates` must be on (a gate with `!`: off). `not_in_cel` is why no policy can check it, and
    what does instead: it is then checked by the webhook only, by the function of that name (`review.FUNCTIONS`), to
    whose details the rule's is added. One that `looks_up` other objects is left out of policies too.
    """

    name: str
    field: str
    holds: str
    error: ErrorType = ErrorType.INVALID
    detail: str = ""
    detail_cel: str = ""
    value: str = ""
    when: str = ""
    each: tuple[Each, ...] = ()
    operations: tuple[AdmissionOperation, ...] = BOTH
    gates: tuple[str, ...] = ()
    params: Params = Params.NONE
    is_warning: bool = False
    not_in_cel: str = ""
    looks_up: bool = False


class FieldChange(msgspec.Struct, frozen=True, kw_only=True):
    """
    One field that is set: `path` are the keys down to it, and missing objects on the way are created.

    A key `[]` is each index of the list there, which is the variable `item` of `when`. With `appends` the value is
    added to a list. Without a value the field is removed.
    """

    path: tuple[str, ...]
    value: str = ""
    appends: bool = False
    when: str = ""
    computed: str = ""


class Default(msgspec.Struct, frozen=True, kw_only=True):
    """What is changed in an object before it is checked, where `when` is true."""

    name: str
    when: str
    changes: tuple[FieldChange, ...] = ()
    operations: tuple[AdmissionOperation, ...] = CREATE
    gates: tuple[str, ...] = ()
    params: Params = Params.NONE
    selects_namespace: bool = False
    not_in_cel: str = ""


class Variable(msgspec.Struct, frozen=True):
    """An expression with a name, as `variables.<name>`; where its gate is off it is `otherwise`."""

    name: str
    expression: str
    gate: str = ""
    otherwise: str = "false"


class AdmissionTarget(msgspec.Struct, frozen=True, kw_only=True):
    """
    The rules of one kind.

    `variables` may use those before them. `framework` is the name of its integration in
    Kueue's Configuration; "" for Kueue's own kinds, which are always checked. `scope_when` is a condition on the whole
    kind: objects for which it is false are neither defaulted nor checked. `implied_scope` takes its place where the
    framework is enabled only because others imply it.
    """

    group: str
    version: str
    kind: str
    plural: str
    rules: tuple[AdmissionRule, ...] = ()
    defaults: tuple[Default, ...] = ()
    variables: tuple[Variable, ...] = ()
    subresources: tuple[str, ...] = ()
    framework: str = ""
    scope_when: str = ""
    implied_scope: str = ""

    @property
    def api_version(self) -> str:
        """The value of an object's `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def path(self) -> str:
        """The end of the paths of its webhooks, as controller-runtime makes them: `-batch-v1-job`."""
        return f"-{self.group.replace('.', '-')}-{self.version}-{self.kind.lower()}"

    def operations(self, *, defaulting: bool) -> tuple[AdmissionOperation, ...]:
        """On which operations any of its defaults, or of its rules, apply."""
        parts: tuple[Default, ...] | tuple[AdmissionRule, ...] = self.defaults if defaulting else self.rules
        return tuple(each for each in AdmissionOperation if any(each in part.operations for part in parts))


def annotation(key: str, of: str = ANNOTATIONS) -> str:
    """The expression of an annotation's value; "" where there is none."""
    return f"{of}[?'{key}'].orValue('')"


def has_annotation(key: str, of: str = ANNOTATIONS) -> str:
    """The expression of whether there is such an annotation."""
    return f"{of}[?'{key}'].hasValue()"


def label(key: str, of: str = LABELS) -> str:
    """The expression of a label's value; "" where there is none."""
    return annotation(key, of)
