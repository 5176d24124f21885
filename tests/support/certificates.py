"""Certificates for servers of tests that listen on loopback."""

import datetime
import ipaddress
from pathlib import Path


def certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate of 127.0.0.1 that signs itself, alone and with its key."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(days=1))
    builder = builder.add_extension(
        x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
    )
    pem = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(key, hashes.SHA256())
    encodings = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    alone, both = directory / "certificate.pem", directory / "keystore.pem"
    alone.write_bytes(pem.public_bytes(serialization.Encoding.PEM))
    both.write_bytes(key.private_bytes(*encodings) + alone.read_bytes())
    return alone, both
