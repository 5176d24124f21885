"""Reads an index like Aiven's plugin, from its documented rules alone: nothing of the code under test is used here.

A default Jackson mapper reads the manifest: unknown keys are an error everywhere but in ``remoteLogSegmentMetadata``, and all five indexes
need their key. An index is a range of ``.indexes``; where the manifest has an encryption it is 12 bytes of vector, ciphertext and tag.
"""

import base64
import functools
import hashlib
import json
import struct
from collections.abc import Callable
from typing import Any

import crcmod.predefined
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import load_pem_private_key

INDEXES = ("offset", "timestamp", "producerSnapshot", "leaderEpoch", "transaction")
CHUNKS = {
    "fixed": {"type", "originalChunkSize", "originalFileSize", "transformedChunkSize", "finalTransformedChunkSize"},
    "variable": {"type", "originalChunkSize", "originalFileSize", "transformedChunks"},
}
ENTRY_BYTES = 46


def fetch_index(get: Callable[[str], bytes], key: str, index: str, private_key: bytes | None) -> bytes | None:
    """The bytes of an index, None for a transaction index that there is not.

    Args:
        get: gives an object by its key.
        key: of the copy, without suffix.
        index: its name in the manifest.
        private_key: PEM, for what is encrypted.
    """
    manifest = json.loads(get(f"{key}.rsm-manifest"))
    needed, optional = {"version", "chunkIndex", "segmentIndexes", "compression"}, {"encryption", "remoteLogSegmentMetadata"}
    assert needed <= manifest.keys() <= needed | optional
    assert manifest["version"] == "1"
    assert manifest["chunkIndex"].keys() == CHUNKS[manifest["chunkIndex"]["type"]]
    assert list(manifest["segmentIndexes"]) == list(INDEXES)
    place = manifest["segmentIndexes"][index]
    if place is None:
        assert index == "transaction"
        return None
    assert place.keys() == {"position", "size"}
    if not place["size"]:
        return b""
    stored = get(f"{key}.indexes")[place["position"] :][: place["size"]]
    assert len(stored) == place["size"], "the range lies in the object"
    encryption = manifest.get("encryption")
    if encryption is None:
        return stored
    assert encryption.keys() == {"dataKey", "aad"}
    assert private_key is not None
    data_key = unpadded(private_key, base64.b64decode(encryption["dataKey"].partition(":")[2]))
    return AESGCM(data_key).decrypt(stored[:12], stored[12:], base64.b64decode(encryption["aad"]))


def mask(seed: bytes, count: int) -> bytes:
    """MGF1 of RFC 8017."""
    return b"".join(hashlib.sha3_512(seed + struct.pack(">I", number)).digest() for number in range(count // 64 + 1))[:count]


def xored(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


@functools.cache
def unpadded(private_key: bytes, data: bytes) -> bytes:
    """RSA-OAEP with SHA3-512 for both hashes (RFC 8017, 7.1.2)."""
    key = load_pem_private_key(private_key, None)
    assert isinstance(key, RSAPrivateKey)
    numbers = key.private_numbers()
    size = (numbers.public_numbers.n.bit_length() + 7) // 8
    block = pow(int.from_bytes(data, "big"), numbers.d, numbers.public_numbers.n).to_bytes(size, "big")

    masked = block[65:]
    seed = xored(block[1:65], mask(masked, 64))
    plain = xored(masked, mask(seed, len(masked)))
    assert plain[:64] == hashlib.sha3_512(b"").digest()
    return plain[64:].partition(b"\1")[2]


def entries_sha256(snapshot: bytes) -> str:
    """Checksum of the entries sorted by producer id, as the fixture shows it; the file must be one that Kafka loads."""
    version, checksum, count = struct.unpack_from(">hIi", snapshot)
    assert (version, len(snapshot)) == (1, 10 + ENTRY_BYTES * count)
    assert checksum == crcmod.predefined.mkCrcFun("crc-32c")(snapshot[6:])
    rows = [snapshot[10 + ENTRY_BYTES * each :][:ENTRY_BYTES] for each in range(count)]
    return hashlib.sha256(b"".join(sorted(rows, key=lambda row: struct.unpack_from(">q", row)[0]))).hexdigest()


def reported(data: bytes | None) -> dict[str, Any] | None:
    """Size and checksum in the form of the fixture's report of the plugin; None where it read none."""
    return None if data is None else {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
