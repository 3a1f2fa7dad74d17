"""The certificates of our servers: when they are renewed, and that a client never meets one that it cannot verify."""

import datetime as dt
import ssl
from pathlib import Path

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.x509.verification import PolicyBuilder, Store
from hypothesis import given
from hypothesis import strategies as st

from headgate.adapters.certificates import (
    AUTHORITY_LIFETIME,
    CERTIFICATE_LIFETIME,
    OVERLAP,
    SKEW,
    StoredCertificates,
    renewed,
)

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
NAMES = ("headgate-webhook.headgate-system.svc", "headgate-webhook.headgate-system")


def verify(stored: StoredCertificates, bundle: bytes, now: dt.datetime, name: str = NAMES[0]) -> None:
    """Raises if a client that trusts `bundle` refuses the certificate."""
    store = Store(x509.load_pem_x509_certificates(bundle))
    verifier = PolicyBuilder().store(store).time(now).build_server_verifier(x509.DNSName(name))
    verifier.verify(x509.load_pem_x509_certificate(stored.certificate), [])


def test_a_first_certificate_is_accepted_for_each_name_and_by_clocks_that_are_behind() -> None:
    """It begins an hour before it was issued."""
    stored = renewed(None, NOW, NAMES)
    for name in NAMES:
        verify(stored, stored.ca_bundle, NOW, name)
    verify(stored, stored.ca_bundle, NOW - SKEW + dt.timedelta(seconds=1))


def test_it_loads_into_a_server(tmp_path: Path) -> None:
    """Python's TLS takes certificate and key."""
    stored = renewed(None, dt.datetime.now(dt.UTC), NAMES)
    (tmp_path / "pair.pem").write_bytes(stored.certificate + stored.key)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tmp_path / "pair.pem")


def test_nothing_changes_while_nothing_is_due() -> None:
    """What is stored stays, byte for byte."""
    stored = renewed(None, NOW, NAMES)
    assert renewed(stored, NOW + CERTIFICATE_LIFETIME / 2, NAMES) is stored


def test_a_certificate_is_renewed_in_time_by_the_same_authority() -> None:
    """With a third of its life left; clients need no other bundle."""
    stored = renewed(None, NOW, NAMES)
    later = renewed(stored, NOW + CERTIFICATE_LIFETIME * 0.7, NAMES)
    assert later.ca_bundle == stored.ca_bundle
    assert later.certificate != stored.certificate


def test_a_new_authority_is_trusted_before_it_signs() -> None:
    """First both are in the bundle, then the new one signs; a client with the former bundle is never cut off."""
    old = NOW + AUTHORITY_LIFETIME * 0.7
    stored = renewed(renewed(None, NOW, NAMES), old - dt.timedelta(days=1), NAMES)
    both = renewed(stored, old, NAMES)
    assert len(x509.load_pem_x509_certificates(both.ca_bundle)) == 2
    assert both.certificate == stored.certificate
    assert renewed(both, old + OVERLAP / 2, NAMES) is both
    signed = renewed(both, old + OVERLAP, NAMES)
    assert signed.certificate != stored.certificate
    verify(signed, both.ca_bundle, old + OVERLAP)


def test_what_cannot_be_used_is_issued_anew() -> None:
    """Keys that do not fit, bytes that are no certificate, and one that has ended."""
    stored, other = renewed(None, NOW, NAMES), renewed(None, NOW, NAMES)
    broken = StoredCertificates(
        ca_bundle=stored.ca_bundle, ca_key=other.ca_key, certificate=stored.certificate, key=stored.key
    )
    garbled = StoredCertificates(ca_bundle=b"", ca_key=b"x", certificate=b"y", key=b"z")
    for each, when in ((broken, NOW), (garbled, NOW), (stored, NOW + CERTIFICATE_LIFETIME * 2)):
        fresh = renewed(each, when, NAMES)
        verify(fresh, fresh.ca_bundle, when)


def issued_by_others(stored: StoredCertificates, *extensions: x509.ExtensionType) -> StoredCertificates:
    """The certificate replaced by one with these extensions only, for the same key and signed by the same authority."""
    key = serialization.load_pem_private_key(stored.key, None)
    authority_key = serialization.load_pem_private_key(stored.ca_key, None)
    assert isinstance(key, EllipticCurvePrivateKey)
    assert isinstance(authority_key, EllipticCurvePrivateKey)
    authority = x509.load_pem_x509_certificates(stored.ca_bundle)[0]
    builder = (
        x509.CertificateBuilder()
        .subject_name(authority.subject)
        .issuer_name(authority.subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + CERTIFICATE_LIFETIME)
    )
    for each in extensions:
        builder = builder.add_extension(each, critical=False)
    pem = builder.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    return msgspec.structs.replace(stored, certificate=pem)


def test_a_certificate_without_the_extensions_that_clients_ask_for_is_issued_anew() -> None:
    """Without names, and without the identifier of its signer: somebody else has written it."""
    stored = renewed(None, NOW, NAMES)
    names = x509.SubjectAlternativeName([x509.DNSName(each) for each in NAMES])
    for extensions in ((), (names,)):
        given = issued_by_others(stored, *extensions)
        fresh = renewed(given, NOW, NAMES)
        assert fresh.certificate != given.certificate
        verify(fresh, stored.ca_bundle, NOW)


def test_another_name_needs_another_certificate() -> None:
    """The authority stays."""
    stored = renewed(None, NOW, NAMES[:1])
    later = renewed(stored, NOW + OVERLAP, NAMES)
    verify(later, stored.ca_bundle, NOW + OVERLAP, NAMES[1])


@given(st.lists(st.integers(min_value=1, max_value=400), min_size=1, max_size=12))
def test_clients_with_the_bundle_of_the_round_before_accept_the_certificate(days: list[int]) -> None:
    """Replicas write bundles in each round; whatever the pauses between renewals were, the next certificate holds."""
    now, stored = NOW, renewed(None, NOW, NAMES)
    for pause in days:
        now += dt.timedelta(days=pause)
        stored = renewed(stored, now, NAMES)
        verify(stored, stored.ca_bundle, now)
        for _ in range(3):
            bundle = stored.ca_bundle  # what a client trusts from here on
            now += OVERLAP / 2
            stored = renewed(stored, now, NAMES)
            verify(stored, bundle, now)
