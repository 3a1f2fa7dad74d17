"""
Certificates of servers that the API server calls: issued, checked and renewed.

`renewed` is the whole policy: from what is stored, the time and the names of the server, what is to be stored next. It
is called by each replica; who stores the result is decided by the store
(`headgate.processes.runtime.serving_certificates`).

A certificate is signed by an authority of our own, which clients trust by its certificate (`caBundle`). A new authority
is trusted first and signs later: it is put into the bundle a while (`OVERLAP`) before it signs the server's
certificate, so that no client meets a certificate that it cannot verify. Certificates are valid from a while before
they are issued (`SKEW`), so that a client whose clock is behind accepts them.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Final

import msgspec
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFETIME: Final = dt.timedelta(days=3650)
CERTIFICATE_LIFETIME: Final = dt.timedelta(days=90)
OVERLAP: Final = dt.timedelta(minutes=15)
"""How long an authority is in the bundle before it signs; each replica writes bundles more often than this."""
SKEW: Final = dt.timedelta(hours=1)
"""How far behind the clock of a client may be."""
RENEW_AT: Final = 3
"""Renewed when less than one part in so many of the lifetime is left."""

_AUTHORITY_NAME: Final = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headgate-webhook-ca")])

Key = ec.EllipticCurvePrivateKey


class StoredCertificates(msgspec.Struct, frozen=True, kw_only=True):
    """
    What is stored, in PEM.

    `ca_bundle` is what clients trust, the newest authority first; `ca_key` is the key of that one. `certificate` and
    `key` are the server's.
    """

    ca_bundle: bytes
    ca_key: bytes
    certificate: bytes
    key: bytes


def renewed(stored: StoredCertificates | None, now: dt.datetime, names: Sequence[str]) -> StoredCertificates:
    """
    What is to be stored: `stored` itself if nothing has to change.

    `now` is in UTC; `names` are the server's DNS names, the first of which is its common name. Content that is no
    certificate, or one that no client would accept, is replaced.
    """
    if stored is None:
        return _issue_all(now, names)
    try:
        authorities = x509.load_pem_x509_certificates(stored.ca_bundle)
        certificate = x509.load_pem_x509_certificate(stored.certificate)
        key = _key(stored.ca_key)
        fits = _is_pair(authorities[0], key) and _is_pair(certificate, _key(stored.key))
    except (ValueError, TypeError, IndexError, UnsupportedAlgorithm):
        return _issue_all(now, names)
    if not fits or _is_over(authorities[0], now):
        return _issue_all(now, names)
    kept = [each for each in authorities if not _is_over(each, now)]
    newest = authorities[0]
    if _needs_signing(certificate, newest, now, names):
        signer_is_trusted = now - newest.not_valid_before_utc >= SKEW + OVERLAP
        if signer_is_trusted or not _is_usable(certificate, kept, now, names):
            return _stored(kept, key, *_issue(newest, key, now, names))
    elif _is_due(newest, now):
        newest, key = _issue_authority(now)
        kept.insert(0, newest)
    if kept == authorities:
        return stored
    return msgspec.structs.replace(stored, ca_bundle=_pem(*kept), ca_key=_key_pem(key))


def expires_at(pem: bytes) -> dt.datetime:
    """When a certificate ends, in UTC. Raises ValueError when it is none."""
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc


def valid_from(pem: bytes) -> dt.datetime:
    """When a certificate begins, in UTC. Raises ValueError when it is none."""
    return x509.load_pem_x509_certificate(pem).not_valid_before_utc


def _needs_signing(
    certificate: x509.Certificate, newest: x509.Certificate, now: dt.datetime, names: Sequence[str]
) -> bool:
    return _is_due(certificate, now) or not _is_usable(certificate, [newest], now, names)


def _is_usable(
    certificate: x509.Certificate, authorities: Sequence[x509.Certificate], now: dt.datetime, names: Sequence[str]
) -> bool:
    """Whether a client that trusts the authorities accepts the certificate for each of the names."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        signer = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, ValueError):
        return False  # somebody else's: without them nobody can tell its names, or who has signed it
    return (
        set(names) <= set(found.get_values_for_type(x509.DNSName))
        and certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
        and any(signer.key_identifier == _identifier_of(each) for each in authorities)
    )


def _identifier_of(authority: x509.Certificate) -> bytes:
    return x509.SubjectKeyIdentifier.from_public_key(authority.public_key()).digest


def _is_due(certificate: x509.Certificate, now: dt.datetime) -> bool:
    lifetime = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return certificate.not_valid_after_utc - now < lifetime / RENEW_AT


def _is_over(certificate: x509.Certificate, now: dt.datetime) -> bool:
    return now >= certificate.not_valid_after_utc


def _issue_all(now: dt.datetime, names: Sequence[str]) -> StoredCertificates:
    authority, key = _issue_authority(now)
    return _stored([authority], key, *_issue(authority, key, now, names))


def _issue_authority(now: dt.datetime) -> tuple[x509.Certificate, Key]:
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key()
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    built = (
        _builder(now, AUTHORITY_LIFETIME)
        .subject_name(_AUTHORITY_NAME)
        .issuer_name(_AUTHORITY_NAME)
        .public_key(public)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    )
    return built.sign(key, hashes.SHA256()), key


def _issue(
    authority: x509.Certificate, authority_key: Key, now: dt.datetime, names: Sequence[str]
) -> tuple[x509.Certificate, Key]:
    key = ec.generate_private_key(ec.SECP256R1())
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    built = (
        _builder(now, CERTIFICATE_LIFETIME)
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])]))
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(each) for each in names]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(signer, critical=False)
    )
    return built.sign(authority_key, hashes.SHA256()), key


def _builder(now: dt.datetime, lifetime: dt.timedelta) -> x509.CertificateBuilder:
    start = now - SKEW
    return (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(now + lifetime)
    )


def _stored(
    authorities: Sequence[x509.Certificate], authority_key: Key, certificate: x509.Certificate, key: Key
) -> StoredCertificates:
    return StoredCertificates(
        ca_bundle=_pem(*authorities),
        ca_key=_key_pem(authority_key),
        certificate=_pem(certificate),
        key=_key_pem(key),
    )


def _pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)


def _key_pem(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _key(pem: bytes) -> Key:
    key = serialization.load_pem_private_key(pem, password=None)
    if not isinstance(key, Key):
        raise TypeError("the key is not one of an elliptic curve")
    return key


def _is_pair(certificate: x509.Certificate, key: Key) -> bool:
    return certificate.public_key() == key.public_key()
