"""
Attribution: which object a piece of work is about.

Code that works on many objects in turn names the current one: `with about("Workload", key): ...`. When the block
raises, the exception becomes an `ObjectFailedError` that names the object, so that the defect affects only this one
(`headgate.core.fold.quarantine`). The innermost `about` counts, as the most precise. Enclosing ones are recorded, for
the case that the innermost object is in quarantine already.
"""

from types import TracebackType
from typing import Final

from headgate.core.state.error_text import describe, where


class ObjectFailedError(Exception):
    """
    Raised when work on one object has failed for an unforeseen reason: a defect.

    `kind` is the object's kind as Kubernetes spells it, `key` its name or `<namespace>/<name>`. `error` and `where` are
    the error and its source line. `around` are the enclosing objects, as kind and key, the next one first.
    """

    def __init__(self, kind: str, key: str, error: Exception) -> None:
        self.kind = kind
        self.key = key
        self.error = describe(error)
        self.where = where(error)
        self.around: list[tuple[str, str]] = []
        super().__init__(f"{kind} {key}: {self.error} in {self.where}")


class about:  # noqa: N801 - reads as a statement
    """Name the object that the block is about. Costs a third of a microsecond."""

    __slots__ = ("key", "kind")

    def __init__(self, kind: str, key: str) -> None:
        self.kind: Final = kind
        self.key: Final = key

    def __enter__(self) -> None:
        """Nothing."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, ObjectFailedError):
            error.around.append((self.kind, self.key))
        elif isinstance(error, Exception) and not isinstance(error, MemoryError):
            raise ObjectFailedError(self.kind, self.key, error) from error
