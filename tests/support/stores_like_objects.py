"""Directories of this machine that are read as objects are, with each request noted before it is answered."""

from dataclasses import dataclass, field

from snaprebuild.storage.local.segment_file import SegmentFile
from snaprebuild.storage.local.store import LocalStore
from snaprebuild.storage.store import FileIdentity
from snaprebuild.tier.audit.partition_audit import CopyAudit, StoreAudit


@dataclass(frozen=True)
class ObjectLikeStore(LocalStore):
    """Files that are read like objects. A subclass lets requests fail in ``request``.

    Attributes:
        requests: locations of the files, one for each request, in order.
    """

    requests: list[str] = field(default_factory=list, compare=False)

    @property
    def is_local(self) -> bool:
        return False

    def request(self, location: str) -> None:
        """Called before each request."""
        self.requests.append(location)

    def read_small(self, location: str, bytes_max: int) -> bytes | None:
        self.request(location)
        return LocalStore.read_small(self, location, bytes_max)

    def read_end(self, location: str, count: int) -> tuple[int, bytes] | None:
        self.request(location)
        return LocalStore.read_end(self, location, count)

    def open_bytes(
        self, location: str, identity: FileIdentity | None = None, deadline: float | None = None, may_grow: bool = False
    ) -> SegmentFile:
        self.request(location)
        return LocalStore.open_bytes(self, location, identity, deadline, may_grow)


def copies_of(audit: StoreAudit) -> list[CopyAudit]:
    """The copies of all partitions."""
    return [copy for partition in audit.partitions for copy in partition.copies]
