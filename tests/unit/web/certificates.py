"""Self-signed certificates for test servers, and TLS contexts that trust them."""

from __future__ import annotations

import datetime as dt
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True, slots=True)
class Authority:
    """A certificate authority for one host, with the TLS contexts of both sides.

    Args:
        server: The context of a server with the certificate.
        trust: Creates the context of a client that trusts only this authority.
        pem: The certificate in PEM format.
    """

    server: ssl.SSLContext
    trust: Callable[[], ssl.SSLContext]
    pem: str


def authority_for(host: str, folder: Path, ends: dt.timedelta = dt.timedelta(days=1)) -> Authority:
    """Return an authority with a certificate for one host, which expires in the time `ends`."""
    key, certificate = signed_for(host, ends)
    pem = folder / "certificate.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pem.write_bytes(private + certificate.public_bytes(serialization.Encoding.PEM))
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pem)
    certificate_text = certificate.public_bytes(serialization.Encoding.PEM).decode()
    return Authority(server, lambda: ssl.create_default_context(cadata=certificate_text), certificate_text)


def signed_for(
    host: str, ends: dt.timedelta = dt.timedelta(days=1)
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    """Return a key and a self-signed certificate for one host, which expires in the time `ends`."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"test authority for {host}")])
    current_time = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(current_time - dt.timedelta(days=1))
        .not_valid_after(current_time + ends)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return key, certificate
