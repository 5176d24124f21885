"""A file that holds one of its pieces many thousand times: what a reader holds of each piece shows in its memory.

A batch, an entry or a line is no harm by itself. As one of many it must not take more memory than its bytes.
"""

import re
import struct

from formats.checksum import crc32c

DIGITS = re.compile(rb"\d{1,1000}")
"""Python makes no number of more than 4300 digits."""
ENTRY_BYTES = 46
LINES_MAX = 500_000
"""Short lines are as many as this at most, as they take long to make."""
BASE_OFFSET, PRODUCER_ID, FIRST_SEQUENCE, PRODUCER_EPOCH = (0, 8), (43, 8), (53, 4), (51, 2)
MAGIC_AT = 16


def grown_log(data: bytes, *, which: int, field: tuple[int, int], bytes_min: int) -> bytes:
    """A log whose batch number ``which`` is followed by copies of it: at the next offsets, with a field that counts up."""
    at, batches = 0, []
    while at + 12 <= len(data):
        size = 12 + max(int.from_bytes(data[at + 8 : at + 12], "big", signed=True), 0)
        batches.append(data[at : at + size])
        at += size
    batch = batches[which % len(batches)] if batches else b""
    if len(batch) < 61 or batch[MAGIC_AT] != 2:
        return data
    step = max(int.from_bytes(batch[23:27], "big", signed=True), 0) + 1
    offset, more = int.from_bytes(batch[:8], "big"), []
    at, size = field
    value = int.from_bytes(batch[at : at + size], "big")
    body = bytearray(batch)
    for number in range(1, max(bytes_min // len(batch), 1) + 1):
        body[at : at + size] = (value + number & (1 << 8 * size) - 1).to_bytes(size, "big")
        body[:8] = struct.pack(">Q", offset + number * step & (1 << 64) - 1)
        body[17:21] = struct.pack(">I", crc32c(bytes(body[21:])))
        more.append(bytes(body))
    behind = which % len(batches) + 1
    return b"".join((*batches[:behind], *more))


def grown_cells(data: bytes, *, head: int, cell: int, field: tuple[int, int], bytes_min: int) -> bytes:
    """An index or a snapshot whose last cell is followed by copies of it, with a field that counts up."""
    if len(data) < head + cell:
        data = data[:head].ljust(head + cell, b"\0")
    last = bytearray(data[head : head + cell])
    at, size = field
    value, more = int.from_bytes(last[at : at + size], "big"), []
    for number in range(1, bytes_min // cell + 1):
        last[at : at + size] = (value + number & (1 << 8 * size) - 1).to_bytes(size, "big")
        more.append(bytes(last))
    return data[: head + cell] + b"".join(more)


def grown_snapshot(data: bytes, *, field: tuple[int, int], bytes_min: int) -> bytes:
    """With its count and its checksum."""
    grown = grown_cells(data, head=10, cell=ENTRY_BYTES, field=field, bytes_min=bytes_min)
    body = struct.pack(">i", (len(grown) - 10) // ENTRY_BYTES) + grown[10:]
    return struct.pack(">hI", 1, crc32c(body)) + body


def grown_text(data: bytes, *, which: int, number: int, bytes_min: int) -> bytes:
    """A text one of whose lines is followed by copies of it, in which one of its numbers counts up; a count of lines is set right."""
    lines = data.splitlines(keepends=True) or [b"0\n"]
    line = lines[which % len(lines)]
    line = line if line.endswith(b"\n") else line + b"\n"
    runs = list(DIGITS.finditer(line))
    copies = min(max(bytes_min // len(line), 1), LINES_MAX)
    if not runs:
        more = [line] * copies
    else:
        run = runs[number % len(runs)]
        value = int(run[0])
        more = [line[: run.start()] + str(value + each).encode() + line[run.end() :] for each in range(1, copies + 1)]
    behind = which % len(lines) + 1
    grown = [*lines[:behind], *more, *lines[behind:]]
    if len(lines) >= 2 and DIGITS.fullmatch(lines[0].strip()) and DIGITS.fullmatch(lines[1].strip()):
        grown[1] = b"%d\n" % (len(grown) - 2)  # as in a checkpoint file: version, count, and this many lines
    return b"".join(grown)


WORDS = (b"", b"a.", b"\\a", b'\\"', b"#\n", b"=\\\n", b'{"a":', b"-1,", b"'\"", b" \t", b"\xc3\xa4")
"""Bytes that cost some parser more than their count when they are repeated: parts of keys, escapes, comments, brackets."""


def repeated_word(data: bytes, *, at: int, word: bytes, bytes_min: int) -> bytes:
    """A text in which one word, or one byte of its own, is repeated many times: brackets that nest, a number or a name without an end."""
    place = at % len(data) if data else 0
    word = word or data[place : place + 1]
    return data[:place] + word * (bytes_min // max(len(word), 1)) + data[place:]


def grown(name: str, data: bytes, *, which: int, field: int, bytes_min: int) -> bytes:
    """By the end of its name."""
    suffix = name[name.rfind(".") :] if "." in name else ""
    if suffix in (".log", ".checkpoint"):
        fields = (PRODUCER_ID, BASE_OFFSET, FIRST_SEQUENCE, PRODUCER_EPOCH)
        return grown_log(data, which=which, field=fields[field % len(fields)], bytes_min=bytes_min)
    if suffix == ".snapshot":
        return grown_snapshot(data, field=((0, 8), (10, 4), (38, 8))[field % 3], bytes_min=bytes_min)
    cells = {".index": (8, ((0, 4), (4, 4))), ".timeindex": (12, ((0, 8), (8, 4))), ".txnindex": (34, ((2, 8), (10, 8)))}
    if suffix in cells:
        cell, places = cells[suffix]
        return grown_cells(data, head=0, cell=cell, field=places[field % 2], bytes_min=bytes_min)
    if field % 4 == 3:
        return repeated_word(data, at=which, word=WORDS[field // 4 % len(WORDS)], bytes_min=bytes_min)
    return grown_text(data, which=which, number=field, bytes_min=bytes_min)
