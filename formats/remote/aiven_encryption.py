"""Encrypted objects of the tiered storage plugin of Aiven: a data key for each segment, itself encrypted with RSA.

A chunk, or an index, is 12 bytes of initialisation vector, the ciphertext (AES-256-GCM), and a tag of 16 bytes. The data key is encrypted
with RSA-OAEP, SHA3-512 for both its hashes. Chunks are compressed before they are encrypted.

Needs the package ``cryptography`` (extra ``encryption``), imported when it is first used. Its OAEP does not support SHA3-512, so
the padding is removed here with the standard library.

Source: ``RsaEncryptionProvider``, ``AesEncryptionProvider`` of the plugin; RFC 8017, section 7.1.2.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field

from formats.errors import BadValueError, FormatError

__all__ = ["ENCRYPTION_BYTES", "VECTOR_BYTES", "DataKey", "NoCryptographyError", "PrivateKey"]

VECTOR_BYTES = 12
"""Size of the initialisation vector."""
TAG_BYTES = 16
ENCRYPTION_BYTES = VECTOR_BYTES + TAG_BYTES
"""Bytes that encryption adds to each chunk and index."""


class NoCryptographyError(Exception):
    """The package ``cryptography`` is not installed."""


@dataclass(frozen=True, slots=True)
class DataKey:
    """The key of one segment.

    Attributes:
        key: 32 bytes.
        additional: authenticated data that is not encrypted (AAD).
    """

    key: bytes = field(repr=False)
    additional: bytes

    def decrypted(self, data: bytes, what: str) -> bytes:
        """The content of a chunk or index; empty if ``data`` is empty.

        Raises:
            BadValueError: it was changed, or belongs to another segment.
        """
        if not data:
            return b""
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise NoCryptographyError from None
        if len(data) < ENCRYPTION_BYTES:
            raise BadValueError(what, expected=f"at least {ENCRYPTION_BYTES} encrypted bytes", found=len(data))
        try:
            return bytes(AESGCM(self.key).decrypt(data[:VECTOR_BYTES], data[VECTOR_BYTES:], self.additional))
        except InvalidTag:
            raise BadValueError(
                what, expected="the content that its tag authenticates", found="other bytes, or of another key"
            ) from None

    def encrypted(self, data: bytes, vector: bytes) -> bytes:
        """The data in the form that ``decrypted`` takes; empty if ``data`` is empty.

        Args:
            data: the content of a chunk or index.
            vector: 12 random bytes that were never used with this key.
        """
        if not data:
            return b""
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError:
            raise NoCryptographyError from None
        if len(vector) != VECTOR_BYTES:
            raise ValueError(f"expected {VECTOR_BYTES} bytes, found {len(vector)}")
        return vector + AESGCM(self.key).encrypt(vector, data, self.additional)


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """A private RSA key.

    Attributes:
        modulus: of the key pair.
        exponent: the private one.
    """

    modulus: int = field(repr=False)
    exponent: int = field(repr=False)

    @classmethod
    def of_pem(cls, data: bytes) -> PrivateKey:
        """From PKCS #8 or PKCS #1 in PEM, not encrypted.

        Raises:
            BadValueError: it is no such key.
            NoCryptographyError: the package ``cryptography`` is not installed.
        """
        try:
            from cryptography.exceptions import UnsupportedAlgorithm
            from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
            from cryptography.hazmat.primitives.serialization import load_pem_private_key
        except ImportError:
            raise NoCryptographyError from None
        try:
            key = load_pem_private_key(data, password=None)
        except (ValueError, TypeError, UnsupportedAlgorithm):  # the reason may quote the key
            raise BadValueError("private key", expected="an RSA key in PEM without a password", found="something else") from None
        if not isinstance(key, RSAPrivateKey):
            raise BadValueError("private key", expected="an RSA key", found=type(key).__name__)
        numbers = key.private_numbers()
        return cls(numbers.public_numbers.n, numbers.d)

    def data_key(self, encrypted: bytes, additional: bytes) -> DataKey:
        """The data key of a segment.

        Raises:
            BadValueError: it was encrypted for another key.
        """
        size = (self.modulus.bit_length() + 7) // 8
        number = int.from_bytes(encrypted, "big")
        if len(encrypted) != size or number >= self.modulus:
            raise self._wrong()
        block = pow(number, self.exponent, self.modulus).to_bytes(size, "big")
        hashed_bytes = hashlib.sha3_512().digest_size
        seed = block[1 : 1 + hashed_bytes]
        masked = block[1 + hashed_bytes :]
        seed = _xored(seed, _mask(masked, hashed_bytes))
        plain = _xored(masked, _mask(seed, len(masked)))
        label = plain[:hashed_bytes]
        padded = plain[hashed_bytes:]
        key = padded.lstrip(b"\0")
        if block[0] or not hmac.compare_digest(label, hashlib.sha3_512(b"").digest()) or key[:1] != b"\1" or len(key) != 33:
            raise self._wrong()
        return DataKey(key[1:], additional)

    @staticmethod
    def _wrong() -> FormatError:
        return BadValueError("data key of a segment", expected="one encrypted for this private key", found="another")


def _mask(seed: bytes, length: int) -> bytes:
    """MGF1 with SHA3-512."""
    blocks = (hashlib.sha3_512(seed + number.to_bytes(4, "big")).digest() for number in range(-(-length // 64)))
    return b"".join(blocks)[:length]


def _xored(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))
