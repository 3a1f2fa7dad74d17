"""
Connection options of NATS: everything that `connect` needs beside the URL, and error messages for its failures.

Secrets stay in files where they can (`password_file`, `token_file`, `creds_file`, `nkey_seed_file`); they are read anew
at each connection, so that a rotated one is used from the next. No secret is ever printed: `without_secrets` is for
URLs in messages, and the repr of `NatsOptions` names only the authentication method.
"""

import re
import ssl
from pathlib import Path

import nats.errors
from msgspec import Struct

from headgate.adapters.jetstream.errors import BrokerError


class TlsNotOffered(nats.errors.Error):
    """Raised before any secret is sent: TLS is required here, and the server uses plain text."""

    def __str__(self) -> str:
        """The message."""
        return (
            "TLS is required here, and this server speaks plain text only: nothing was sent to it. "
            "Name its TLS port, or leave out nats.tls_* and tls://"
        )


class NatsOptions(Struct, frozen=True, kw_only=True):
    """
    How to reach NATS, beside its URL. At most one authentication method is needed.

    `creds_file` is a NATS credentials file (JWT and seed), `nkey_seed_file` an NKEY seed. `tls_required` refuses a
    server that does not offer TLS before a credential is sent; a `tls://` URL or a named TLS file means the same.
    `js_domain` is the JetStream domain behind a leaf node. The windows bound what one process has in flight.
    """

    user: str | None = None
    password: str | None = None
    password_file: str | None = None
    token: str | None = None
    token_file: str | None = None
    creds_file: str | None = None
    nkey_seed_file: str | None = None
    tls_required: bool = False
    tls_ca_file: str | None = None
    tls_cert_file: str | None = None
    tls_key_file: str | None = None
    tls_hostname: str | None = None
    js_domain: str | None = None
    inbox_prefix: str = "_INBOX"
    connect_timeout_s: float = 2.0
    ping_interval_s: float = 5.0
    reconnect_wait_s: float = 0.1
    request_timeout_s: float = 5.0
    window_messages_max: int = 1024
    window_bytes_max: int = 8 * 1024 * 1024

    def __repr__(self) -> str:
        """Without secrets: options appear in logs."""
        return f"NatsOptions(auth={self._way or 'none'}, tls={self.uses_tls}, js_domain={self.js_domain!r})"

    @property
    def _way(self) -> str:
        ways = ("creds_file", "nkey_seed_file", "token_file", "token", "user")
        return next((way for way in ways if getattr(self, way)), "")

    @property
    def who(self) -> str:
        """The identity shown to the server, as text: `user scheduler`, `the user of scheduler.nk`."""
        match self._way:
            case "user":
                return f"user {self.user}"
            case "creds_file" | "nkey_seed_file" as way:
                return f"the user of {getattr(self, way)}"
            case "token" | "token_file":
                return "the user of this token"
            case _:
                return "a client without credentials"

    @property
    def uses_tls(self) -> bool:
        """Whether TLS is configured here (a `tls://` URL requires it too)."""
        return self.tls_required or any((self.tls_ca_file, self.tls_cert_file, self.tls_hostname))

    def tls_context(self) -> ssl.SSLContext | None:
        """
        The context for the files named; None when TLS is not configured.

        :raises BrokerError: a file cannot be used.
        """
        if not self.uses_tls:
            return None
        named = self.tls_ca_file
        try:
            context = ssl.create_default_context(cafile=self.tls_ca_file)
            if self.tls_cert_file:
                named = f"{self.tls_cert_file} with key {self.tls_key_file or self.tls_cert_file}"
                context.load_cert_chain(self.tls_cert_file, self.tls_key_file)
        except (OSError, ssl.SSLError) as error:
            raise BrokerError(f"TLS for NATS: {named} cannot be used: {_words(error)}") from error
        return context

    def secret(self, key: str) -> str | None:
        """
        The password or the token: as given, or from its file.

        :raises BrokerError: the file cannot be read.
        """
        given: str | None = getattr(self, key)
        named: str | None = getattr(self, f"{key}_file")
        return given if named is None else read_secret(named, f"nats.{key}_file")


def read_secret(path: str, what: str) -> str:
    """
    The text of a file that holds one secret, without the final newline.

    :raises BrokerError: it cannot be read, or is empty.
    """
    try:
        text = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BrokerError(f"{what}: {path} cannot be read: {_words(error)}") from error
    if not text:
        raise BrokerError(f"{what}: {path} is empty")
    return text


def without_secrets(url: str) -> str:
    """The URL, or several separated by commas, without user and password, for messages."""
    return re.sub(r"(^|://|,)[^/,]*@", r"\1", url)


def wants_tls(url: str, options: NatsOptions) -> bool:
    """Whether a server without TLS has to be refused."""
    return options.uses_tls or any(part.strip().startswith("tls://") for part in url.split(","))


def explain(error: Exception, options: NatsOptions) -> str:
    """The error of a connection as text, and for TLS what to check."""
    match error:
        case TlsNotOffered():
            return str(error)
        case ssl.SSLCertVerificationError():
            return f"TLS: the server's certificate is refused: {_verdict(error, options)}"
        case ssl.SSLError() if _is_about_ours(error):
            return (
                "TLS: the server refuses this client's certificate, or asks for one: "
                "check nats.tls_cert_file and nats.tls_key_file"
            )
        case ssl.SSLError():
            return f"TLS: no handshake with the server ({_words(error)}): is this port its client port?"
        case _:
            return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


_EXPIRED, _NOT_YET, _MISMATCHES, _SELF_SIGNED, _UNKNOWN = 10, 9, (62, 64), (18, 19), (2, 20, 21)


def _verdict(error: ssl.SSLCertVerificationError, options: NatsOptions) -> str:
    authority = (
        f"by nats.tls_ca_file ({options.tls_ca_file})" if options.tls_ca_file else "by this system's authorities"
    )
    match error.verify_code:
        case code if code == _EXPIRED:
            return "it has expired; renew it on the server"
        case code if code == _NOT_YET:
            return "it is not valid yet; compare the clocks"
        case code if code in _MISMATCHES:
            return f"it is for another name ({error.verify_message}); nats.tls_hostname says which name to expect"
        case code if code in (*_SELF_SIGNED, *_UNKNOWN):
            return f"it is not signed {authority} ({error.verify_message}); name the authority in nats.tls_ca_file"
        case _:
            return str(error.verify_message)


def _is_about_ours(error: ssl.SSLError) -> bool:
    reason = (error.reason or "").upper()
    return "CERTIFICATE_REQUIRED" in reason or ("ALERT" in reason and "CERT" in reason)


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return str(getattr(error, "strerror", None) or error)
