"""KIP-1023's worked example as bytes: two copies, and a leader that has gone on.

Offsets 0 to 2 were written in epoch 0, 3 and 4 in epoch 1, 5 and 6 in epoch 2, 7 and 8 in epoch 3. Producer 7 writes all along, 8 at 1.
"""

import struct
from pathlib import Path

from log_dirs import batch, snapshot_bytes
from tiers import Copy, write_tier

from formats.partition.producer_snapshot import ProducerEntry

MS = 1_795_266_400_000
EPOCHS = ((0, 0), (1, 3), (2, 5), (3, 7))


def written(epoch: int, data: bytes) -> bytes:
    """A batch as the leader of an epoch wrote it; the checksum does not cover the epoch."""
    return data[:12] + struct.pack(">i", epoch) + data[16:]


SEG_0_2 = b"".join(
    (
        written(0, batch(0, producer_id=7, timestamp=MS)),
        written(0, batch(1, producer_id=8, timestamp=MS + 1)),
        written(0, batch(2, producer_id=7, sequence=1, timestamp=MS + 2)),
    )
)
SEG_3_5 = b"".join(
    (
        written(1, batch(3, producer_id=7, sequence=2, count=2, timestamp=MS + 3)),
        written(2, batch(5, producer_id=7, sequence=4, timestamp=MS + 4)),
    )
)
REST = b"".join(
    (
        written(2, batch(6, producer_id=7, sequence=5, timestamp=MS + 5)),
        written(3, batch(7, producer_id=7, sequence=6, count=2, timestamp=MS + 6)),
    )
)

EIGHT = ProducerEntry(8, 0, 0, 1, 0, MS + 1, -1, -1)
AT_3 = (ProducerEntry(7, 0, 1, 2, 0, MS + 2, -1, -1), EIGHT)
AT_6 = (ProducerEntry(7, 0, 4, 5, 0, MS + 4, -1, -1), EIGHT)
AT_9 = (ProducerEntry(7, 0, 7, 8, 1, MS + 6, -1, -1), EIGHT)


def write_example(root: Path) -> Path:
    """Remote storage, with the two copies."""
    copies = [Copy(0, SEG_0_2, EPOCHS[:1], snapshot_bytes(AT_3)), Copy(3, SEG_3_5, EPOCHS[:3], snapshot_bytes(AT_6))]
    return write_tier(root, "t", 0, copies)
