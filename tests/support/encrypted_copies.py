"""Copies under several real key pairs: the data key of a bundled copy, encrypted again for another RSA key (RFC 8017, 7.1.1)."""

import base64
import hashlib
import json
from pathlib import Path

from aiven_index_reader import mask, unpadded, xored
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from manifests import FIXTURES

KEY1 = FIXTURES / "aiven-layout" / "keys" / "key1.private.pem"


def new_key(path: Path) -> RSAPrivateKey:
    """A key pair, whose private half is written in PEM."""
    key = generate_private_key(public_exponent=65537, key_size=2048)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return key


def move_to_key(manifest: Path, name: str, key: RSAPrivateKey) -> None:
    """Encrypts the data key of a copy for another key pair, as the plugin does for copies made after its configuration changed."""
    text = manifest.read_text()
    old = json.loads(text)["encryption"]["dataKey"]
    data_key = unpadded(KEY1.read_bytes(), base64.b64decode(old.partition(":")[2]))
    manifest.write_text(text.replace(old, f"{name}:{base64.b64encode(_padded(key, data_key)).decode()}"))


def _padded(key: RSAPrivateKey, data: bytes) -> bytes:
    numbers = key.public_key().public_numbers()
    size = (numbers.n.bit_length() + 7) // 8
    plain = hashlib.sha3_512(b"").digest() + b"\0" * (size - 130 - len(data)) + b"\1" + data
    seed = hashlib.sha3_512(data).digest()
    masked = xored(plain, mask(seed, len(plain)))
    block = b"\0" + xored(seed, mask(masked, 64)) + masked
    return pow(int.from_bytes(block, "big"), numbers.e, numbers.n).to_bytes(size, "big")
