"""Damage to a tree of files as a short script of bytes, which a search by coverage changes so that each change means something.

A script names files, pieces of them (batches, entries of a snapshot or an index, words of a text) and fields of pieces. Lengths and
checksums are set right again after each edit, unless it says otherwise, because random bytes get no further than a checksum. Files are
renamed, too, put in the place of others, and replaced by what is no file. Any bytes are a script.
"""

import hashlib
import json
import os
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from edited_tree import Files, Odd
from grown_files import grown

from formats.checksum import crc32c

EDITS_MAX = 12
LITERAL_BYTES_MAX = 64
NAME_BYTES_MAX = 255
UNSEALED = 0x80
"""Flag of an edit: lengths and checksums stay as they were."""


NUMBERS = (
    *range(-1, 9),
    60,
    61,
    127,
    128,
    255,
    256,
    1000,
    *(2**bits + more for bits in (15, 31, 63) for more in (-1, 0, -(2 ** (bits + 1)))),
)
WORDS = (
    *b"-1 0 1 2 00 1e999 NaN 2147483648 9223372036854775807 9223372036854775808 9999999999999999999999999999999999999999".split(),
    *b'= : , " { } [ ] null true \\ \\u0000 .. / payments __cluster_metadata version directory.id 1970-01-01 2d'.split(),
    *(b"", b" ", b"\n", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"A" * 22),
)
SUFFIXES = (
    "",
    *map(
        os.fsdecode,
        b".log .index .timeindex .txnindex .snapshot .checkpoint .deleted .cleaned .swap .tmp .part .leader_epoch_checkpoint".split(),
    ),
    *map(os.fsdecode, b".rsm-manifest .indexes .snapshot.deleted .log.swap .log.cleaned .snapshot.tmp".split()),
)
DIRECTORY_NAMES = (
    *map(
        os.fsdecode,
        b"other-0 payments-1 payments -0 a-b-0 __consumer_offsets-0 __cluster_metadata-0 payments-2147483648 payments-00".split(),
    ),
    *(f"payments-0.{'5' * 32}-{kind}" for kind in ("delete", "stray", "future")),
    *("x" * 300 + "-0", "payments--1", "..-0", "\udcff-0", "a\nb-0", "\x1b[31m-0"),
)


class Script:
    """Reads a script; after its end everything is zero."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    @property
    def is_done(self) -> bool:
        return self._at >= len(self._data)

    def byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1] if self._at <= len(self._data) else 0

    def below(self, count: int) -> int:
        """A number below ``count``, of one byte where that is enough; 0 where there is none."""
        value = self.byte() if count <= 256 else self.byte() << 8 | self.byte()
        return value % count if count else 0

    def literal(self) -> bytes:
        """A length, and this many bytes."""
        count = self.byte() % (LITERAL_BYTES_MAX + 1)
        self._at += count
        return self._data[self._at - count : self._at]

    def integer(self, size_bytes: int, now: int) -> bytes:
        """Bytes of an integer: of the odd ones, near the one that is there, or any."""
        how = self.byte()
        if how < 0x60:
            value = NUMBERS[how % len(NUMBERS)]
        elif how < 0xC0:
            value = now + how - 0x90
        else:
            value = int.from_bytes(bytes(self.byte() for _ in range(size_bytes)), "big")
        return (value & (1 << 8 * size_bytes) - 1).to_bytes(size_bytes, "big")


# ---------------------------------------------------------------------------------------------------------------- shapes


@dataclass(frozen=True)
class Shape:
    """How a kind of file is built.

    Attributes:
        split: into pieces, which joined are the file.
        fields: of a piece, as position and size in bytes; none where a piece is a word.
        seal: sets length and checksum of a piece right.
    """

    split: Callable[[bytes], list[bytes]]
    fields: tuple[tuple[int, int], ...] = ()
    seal: Callable[[bytes], bytes] = bytes


def _batches(data: bytes) -> list[bytes]:
    pieces, at = [], 0
    while at + 12 <= len(data):
        size = 12 + max(int.from_bytes(data[at + 8 : at + 12], "big", signed=True), 0)
        pieces.append(data[at : at + size])
        at += size
    return [*pieces, data[at:]] if at < len(data) else pieces


def sealed_batch(batch: bytes) -> bytes:
    """With its length and its checksum."""
    if len(batch) < 26:
        return batch
    batch = batch[:8] + struct.pack(">i", len(batch) - 12) + batch[12:]
    if batch[16] == 2:
        return batch[:17] + struct.pack(">I", crc32c(batch[21:])) + batch[21:]
    return batch[:12] + struct.pack(">I", zlib.crc32(batch[16:])) + batch[16:] if batch[16] < 2 else batch


def sealed_snapshot(data: bytes) -> bytes:
    """With its checksum, and the count of its entries where they are whole."""
    if len(data) < 10:
        return data
    count = struct.pack(">i", (len(data) - 10) // 46) if (len(data) - 10) % 46 == 0 else data[6:10]
    return data[:2] + struct.pack(">I", crc32c(count + data[10:])) + count + data[10:]


def _cells(size: int, head: int = 0) -> Callable[[bytes], list[bytes]]:
    def split(data: bytes) -> list[bytes]:
        return [each for each in (data[:head], *(data[at : at + size] for at in range(head, len(data), size))) if each]

    return split


def _fields(*sizes: int) -> tuple[tuple[int, int], ...]:
    return tuple((sum(sizes[:index]), size) for index, size in enumerate(sizes))


LOG = Shape(_batches, _fields(8, 4, 4, 1, 4, 2, 4, 8, 8, 8, 2, 4, 4), sealed_batch)
SNAPSHOT = Shape(_cells(46, 10), _fields(8, 2, 4, 8, 4, 8, 4, 8))
TEXT = Shape(re.compile(rb"[A-Za-z_.]+|[A-Za-z0-9_-]+|\s+|.", re.DOTALL).findall)
SHAPES = {
    ".log": LOG,
    ".checkpoint": LOG,
    ".snapshot": SNAPSHOT,
    ".index": Shape(_cells(8), _fields(4, 4)),
    ".timeindex": Shape(_cells(12), _fields(8, 4)),
    ".txnindex": Shape(_cells(34), _fields(2, 8, 8, 8, 8)),
    ".indexes": Shape(_cells(8), _fields(4, 4)),
}


def shape_of(name: str) -> Shape:
    """By the end of its name; all others are texts."""
    return SHAPES.get(os.path.splitext(name)[1], TEXT)


def sealed(files: Files, name: str) -> None:
    """Corrects the checksum of a whole file: of a snapshot, also the one among the indexes of a copy, and of a saved plan."""
    data = files.get(name)
    if not isinstance(data, bytes):
        return
    if name.endswith(".snapshot"):
        files[name] = sealed_snapshot(data)
    elif name.endswith("plan.json"):
        lines = data.splitlines(keepends=True)
        if lines:
            digest = hashlib.sha256(b"".join(lines[:-1])).hexdigest().encode()
            files[name] = b"".join(lines[:-1]) + re.sub(rb'(?<="sha256": ")[0-9a-f]*', digest, lines[-1])
    elif name.endswith(".indexes"):
        manifest = files.get(name.removesuffix(".indexes") + ".rsm-manifest")
        try:
            place = json.loads(manifest)["segmentIndexes"]["producerSnapshot"]  # type: ignore[arg-type]
            at, end = place["position"], place["position"] + place["size"]
            files[name] = data[:at] + sealed_snapshot(data[at:end]) + data[end:]
        except (ValueError, TypeError, LookupError):
            return


# ---------------------------------------------------------------------------------------------------------------- edits of bytes


@dataclass
class Piece:
    """A piece of a file that is edited; ``put`` gives the file its new pieces."""

    files: Files
    name: str
    shape: Shape
    pieces: list[bytes]
    index: int
    is_sealed: bool

    @property
    def data(self) -> bytes:
        return self.pieces[self.index]

    def put(self, *pieces: bytes) -> None:
        new = [self.shape.seal(each) for each in pieces] if self.is_sealed else list(pieces)
        self.files[self.name] = b"".join((*self.pieces[: self.index], *new, *self.pieces[self.index + 1 :]))
        if self.is_sealed:
            sealed(self.files, self.name)


def _field(piece: Piece, script: Script) -> None:
    """A field of a piece is another number, a word another word."""
    if not piece.shape.fields:
        piece.put(WORDS[script.below(len(WORDS))])
        return
    at, size = piece.shape.fields[script.below(len(piece.shape.fields))]
    now = int.from_bytes(piece.data[at : at + size], "big")
    piece.put(piece.data[:at] + script.integer(size, now) + piece.data[at + size :])


def _overwrite(piece: Piece, script: Script) -> None:
    at = script.below(len(piece.data))
    literal = script.literal()
    piece.put(piece.data[:at] + literal + piece.data[at + len(literal) :])


def _insert(piece: Piece, script: Script) -> None:
    at = script.below(len(piece.data) + 1)
    piece.put(piece.data[:at] + script.literal() + piece.data[at:])


def _delete(piece: Piece, script: Script) -> None:
    at = script.below(len(piece.data))
    piece.put(piece.data[:at] + piece.data[at + 1 + script.byte() :])


def _double(piece: Piece, script: Script) -> None:
    piece.put(*(piece.data,) * (2 + script.byte() % 3))


def _drop(piece: Piece, _: Script) -> None:
    piece.put()


def _swap(piece: Piece, script: Script) -> None:
    """Two pieces change places."""
    other = script.below(len(piece.pieces))
    mine, piece.pieces[other] = piece.data, piece.data if other == piece.index else piece.pieces[other]
    theirs = piece.pieces[other]
    piece.pieces[other] = mine
    piece.put(theirs)


def _record(piece: Piece, script: Script) -> None:
    """Key or value of a record of a batch is another one, of another length."""
    if piece.shape is not LOG or len(piece.data) < 61:
        return
    try:
        records = list(_records(piece.data[61:]))
    except (IndexError, ValueError):
        return
    if not records:
        return
    index = script.below(len(records))
    head, key, value, tail = records[index]
    what = script.byte()
    changed = value if what & 1 else key
    literal = script.literal()
    at = script.below(len(changed or b"") + 1)
    if what & 2:
        changed = literal
    elif what & 4:
        changed = None
    elif what & 8:
        changed = (changed or b"")[:at] + literal + (changed or b"")[at:]
    else:
        changed = (changed or b"")[:at] + literal + (changed or b"")[at + len(literal) :]
    records[index] = (head, key, changed, tail) if what & 1 else (head, changed, value, tail)
    piece.put(piece.data[:61] + b"".join(_record_bytes(*each) for each in records))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at


def _varint_bytes(value: int) -> bytes:
    value = value << 1 if value >= 0 else (-value << 1) - 1
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*found, value))


def _records(data: bytes) -> Iterator[tuple[bytes, bytes | None, bytes | None, bytes]]:
    """Yields of each record the bytes before its key, key, value, and the bytes after it; by hand, since this is no reader under
    test."""
    at = 0
    while at < len(data):
        length, at = _varint(data, at)
        end = at + length
        _, behind = _varint(data, at + 1)
        _, behind = _varint(data, behind)
        head = data[at:behind]
        size, behind = _varint(data, behind)
        key = None if size < 0 else data[behind : behind + size]
        size, behind = _varint(data, behind + max(size, 0))
        value = None if size < 0 else data[behind : behind + size]
        behind += max(size, 0)
        if not at < behind <= end <= len(data):
            raise ValueError
        yield head, key, value, data[behind:end]
        at = end


def _record_bytes(head: bytes, key: bytes | None, value: bytes | None, tail: bytes) -> bytes:
    sized = (b"\x01" if each is None else _varint_bytes(len(each)) + each for each in (key, value))
    body = b"".join((head, *sized, tail))
    return _varint_bytes(len(body)) + body


# ---------------------------------------------------------------------------------------------------------------- edits of files


def _cut(files: Files, name: str, script: Script) -> None:
    data = files[name]
    if isinstance(data, bytes):
        files[name] = data[: script.below(len(data) + 1)]


def _append(files: Files, name: str, script: Script) -> None:
    """Zeros, as of a file that was allocated ahead, or something else."""
    data = files[name]
    if isinstance(data, bytes):
        files[name] = data + (bytes(script.byte() * 16) if script.byte() & 1 else script.literal())


def _other(files: Files, name: str, script: Script) -> None:
    """The bytes of another file."""
    files[name] = files[sorted(files)[script.below(len(files))]]


def _replace(files: Files, name: str, script: Script) -> None:
    files[name] = script.literal()


def _remove(files: Files, name: str, _: Script) -> None:
    del files[name]


def _odd(files: Files, name: str, script: Script) -> None:
    targets = (os.path.basename(name), "..", "/dev/zero", "/dev/stdin", "nothing", sorted(files)[script.below(len(files))])
    kinds = (
        Odd("directory"),
        Odd("pipe"),
        Odd("socket"),
        Odd("device"),
        Odd("hard link"),
        *(Odd("link", each) for each in targets),
    )
    files[name] = kinds[script.byte() % len(kinds)]


def _more(files: Files, name: str, script: Script) -> None:
    """A second file next to it, of another name."""
    files[_renamed(files, name, script)] = files[name]


def _rename(files: Files, name: str, script: Script) -> None:
    new = _renamed(files, name, script)
    files[new] = files.pop(name)


def _renamed(files: Files, name: str, script: Script) -> str:
    directory, base = os.path.split(name)
    how = script.byte() % 4
    if how == 0:
        base = safe_name(script.literal())
    elif how == 1:
        base = re.sub(r"^\d+", lambda match: f"{int.from_bytes(script.integer(8, int(match[0])), 'big'):020d}", base)
    elif how == 2:
        base = re.split(r"\.", base, maxsplit=1)[0] + SUFFIXES[script.below(len(SUFFIXES))]
    else:
        base = os.path.basename(sorted(files)[script.below(len(files))]) + SUFFIXES[script.below(len(SUFFIXES))]
    return os.path.join(directory, base[:NAME_BYTES_MAX])


def safe_name(data: bytes) -> str:
    """A name that a file can have."""
    name = data.replace(b"/", b"").replace(b"\0", b"")[:NAME_BYTES_MAX]
    return os.fsdecode(name if name not in (b"", b".", b"..") else b"_")


def _rename_directory(files: Files, name: str, script: Script) -> None:
    """The directory of a file has another name."""
    directory, _ = os.path.split(name)
    above, _ = os.path.split(directory)
    if not directory:
        return
    which = script.byte()
    new = safe_name(script.literal()) if which == 0 else DIRECTORY_NAMES[which % len(DIRECTORY_NAMES)][:NAME_BYTES_MAX]
    for each in [each for each in files if each.startswith(f"{directory}/")]:
        files[os.path.join(above, new, each[len(directory) + 1 :])] = files.pop(each)


OF_PIECES = (_field, _field, _field, _overwrite, _overwrite, _insert, _delete, _double, _drop, _swap, _record, _record)
OF_FILES = (_cut, _append, _other, _replace, _remove, _odd, _more, _rename, _rename_directory)
MANY = 0x7E
"""Kinds from here on make a file large: two of 128, as such a run takes long."""
MANY_BITS = range(8, 17)


def _many(files: Files, name: str, script: Script) -> None:
    """A piece is repeated many times, and counts up."""
    data = files[name]
    if isinstance(data, bytes):
        bits = MANY_BITS[script.below(len(MANY_BITS))]
        which = script.below(256)
        files[name] = grown(name, data, which=which, field=script.byte(), bytes_min=1 << bits)


def edit(files: Files, data: bytes) -> None:
    """Follows a script."""
    script = Script(data)
    for _ in range(EDITS_MAX):
        if script.is_done or not files:
            return
        kind, names = script.byte(), sorted(files)
        name = names[script.below(len(names))]
        if (kind & ~UNSEALED) >= MANY:
            _many(files, name, script)
            continue
        which = (kind & ~UNSEALED) % (len(OF_PIECES) + len(OF_FILES))
        if which >= len(OF_PIECES):
            OF_FILES[which - len(OF_PIECES)](files, name, script)
            continue
        content = files[name]
        shape = shape_of(name)
        pieces = shape.split(content) if isinstance(content, bytes) else []
        if pieces:
            piece = Piece(files, name, shape, pieces, script.below(len(pieces)), is_sealed=not kind & UNSEALED)
            OF_PIECES[which](piece, script)


def scripts_over(files: Files) -> list[bytes]:
    """One of each kind, over files in turn: where a search begins."""
    count = len(OF_PIECES) + len(OF_FILES)
    found = []
    for index in range(max(len(files), count)):
        found.append(bytes((index % count, index % len(files), index * 5 % 256, index * 7 % 256, index * 11 % 256, 2, 0, 1)))
    return [*found, *(bytes((MANY, index, 8, 255, index)) for index in range(len(files)))]
