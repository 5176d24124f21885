"""The log directory of a stopped broker with one partition, made batch by batch, for tests of what its next start does."""

from pathlib import Path

from log_dirs import batch, make_log_dir, snapshot_name, write_partition

TOPIC_ID = "version: 0\ntopic_id: jbhM2bicRN6uA2U4lwDEMw"
KRAFT = "version=1\nnode.id=1\ncluster.id=5L6g3nShT-eMCtK--X86sw\ndirectory.id=1-fAsm5GQaGBh51Wys3Sww\n"
BASES = (0, 10, 20)
END = 30


def made(place: Path, *, clean: bool = True, kraft: bool = True) -> Path:
    """A partition of three segments of ten batches, as a broker leaves it after a stop."""
    root = place / "logs"
    directory = root / "orders-0"
    segments = {
        base: b"".join(batch(offset, producer_id=7, sequence=offset) for offset in range(base, base + 10)) for base in BASES
    }
    write_partition(directory, segments)
    for base in BASES:
        for ending in (".index", ".timeindex"):
            (directory / f"{base:020d}{ending}").write_bytes(b"")
    for offset in (*BASES[1:], END):
        (directory / snapshot_name(offset)).write_bytes(bytes.fromhex("000148674bc700000000"))
    make_log_dir(root, clean=clean, recovery_points={"orders-0": END}, replication_offset_checkpoint=f"0\n1\norders 0 {END}\n")
    if kraft:
        (root / "meta.properties").write_text(KRAFT)
        (directory / "partition.metadata").write_text(TOPIC_ID)
    return directory


def last_segment(directory: Path) -> Path:
    return directory / f"{BASES[-1]:020d}.log"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)
