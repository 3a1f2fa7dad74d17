"""
Errors between this process and the broker, sorted by the caller's next step.

`NotSent` and `OutcomeUnknown` are transient and are retried inside the adapter: the first at once, the second after
determining the outcome. `JetStreamApiError` is the broker's own answer; its code decides. `BrokerClosed` and
`BrokerError` reach the processes.
"""

# ruff: noqa: N818 - exceptions here are named for what happened.

from headgate.adapters.log import LogError

STREAM_NOT_FOUND = 10059
NO_MESSAGE = 10037
STREAM_NAME_IN_USE = 10058
WRONG_LAST_SEQUENCE = frozenset({10071, 10164})
"""10071 names the actual last sequence; 10164 means that another write to the subject is in progress in the cluster."""

_FOR_GOOD = frozenset(
    {
        10003,  # bad request
        10025,  # invalid JSON
        10052,  # stream configuration invalid
        10054,  # message size exceeds maximum allowed
        10060,  # expected stream does not match
        10065,  # subjects overlap with an existing stream
        10074,  # replicas > 1 not supported in non-clustered mode
        10094,  # consumer config
        10109,  # stream sealed
    }
)


class BrokerError(LogError):
    """The broker refused permanently; the message has the reason. The process stops: configuration must change."""


class BrokerClosed(BrokerError):
    """
    The connection is closed permanently (credentials refused, or closed by us).

    The process exits and is started again.
    """


class PermissionDenied(BrokerError):
    """The broker denies this user a subject. It never answers such a request."""

    def __init__(self, who: str, act: str, subject: str) -> None:
        super().__init__(
            f"{who} may not {act} {subject}: give it the permissions that `headgate nats permissions` prints"
        )
        self.who = who
        self.subject = subject


class NotSent(Exception):
    """The request certainly had no effect: there was no connection, or no subscriber."""


class OutcomeUnknown(Exception):
    """The request was sent and no answer came: it may or may not have had its effect, and may still have it."""


class JetStreamApiError(Exception):
    """The broker answered with an error of the JetStream API."""

    def __init__(self, what: str, *, code: int, err_code: int, description: str) -> None:
        super().__init__(f"{what}: {description} ({code}/{err_code})")
        self.code = code
        self.err_code = err_code
        self.description = description

    @property
    def for_good(self) -> bool:
        """Whether the error is permanent: the request itself is wrong."""
        return self.err_code in _FOR_GOOD


class StreamMismatch(BrokerError):
    """A stream of the cell's name exists and Headgate cannot use it."""
