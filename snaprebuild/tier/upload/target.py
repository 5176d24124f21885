"""One partition in remote storage for an uploader: locations of objects, complete copies, and claims."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from formats.errors import FormatError
from formats.remote.object_names import AivenObject, aiven_key, parse_aiven_key
from formats.remote.remote_log_metadata import TopicIdPartition
from formats.remote.upload_claim import CLAIM_BYTES_MAX, ClaimKey, UploadClaim, parse_claim_key, read_claim
from snaprebuild.errors import GoneFileError, ReadFailedError, RefusedError
from snaprebuild.storage.remote.listing import CopyObjects, TierLayout, TierObject
from snaprebuild.storage.remote.store import TierStore
from snaprebuild.storage.store import FileIdentity
from snaprebuild.storage.store_path import StorePath
from snaprebuild.tier.remote_log import RemoteLog
from snaprebuild.tier.remote_partition import RemoteCopy, RemotePartition

__all__ = ["UploadTarget", "last_offset"]


def last_offset(copy: RemoteCopy) -> int:
    """Last offset of a copy; -1 if its manifest does not have it."""
    return -1 if copy.end_offset is None else copy.end_offset


@dataclass(slots=True)
class UploadTarget:
    """A partition in a store, for an uploader.

    Attributes:
        prefix: ``key.prefix``, before the topic.
        remote: the partition, with the copies that are complete; none before ``read_listing``.
        claims: (first offset, last offset) of each; none before ``read_listing``.
    """

    prefix: str
    remote: RemotePartition
    claims: list[tuple[int, int]] = field(default_factory=list)

    @classmethod
    def of(cls, root: StorePath, prefix: str, partition: TopicIdPartition) -> UploadTarget:
        """A partition below a location, before it is listed."""
        return cls(prefix, RemotePartition(partition, root, TierLayout.AIVEN, TierStore(root.store), RemoteLog()))

    def file(self, start_offset: int, segment_id: bytes, kind: AivenObject) -> StorePath:
        """An object of a copy."""
        place = self.remote.id
        key = aiven_key(self.prefix, place.topic, place.topic_id, place.partition, start_offset, segment_id, kind)
        return self.remote.base.below(key)

    def claim_file(self, start_offset: int, end_offset: int) -> StorePath:
        """The claim of a segment."""
        return self.remote.base.below(
            str(ClaimKey(self.prefix, self.remote.id.topic_id, self.remote.id.partition, start_offset, end_offset))
        )

    def claim_of(self, start_offset: int, end_offset: int) -> UploadClaim | None:
        """The claim of a segment; None without one.

        Raises:
            ReadFailedError: it cannot be read.
            RefusedError: what is there is no claim.
        """
        file = self.claim_file(start_offset, end_offset)
        data = file.read_small(CLAIM_BYTES_MAX)
        try:
            return None if data is None else read_claim(data, file=file.path)
        except FormatError as error:
            raise RefusedError(error.message, path=file.path) from error

    def read_listing(self) -> None:
        """Lists the copies that are complete, and the claims.

        Raises:
            ReadFailedError: the store cannot be listed.
        """
        objects: dict[bytes, CopyObjects] = {}
        for name, identity in self._listed(os.path.dirname(self.file(0, bytes(16), AivenObject.LOG).path)):
            key = parse_aiven_key(name)
            if key is not None and key.head == self.prefix + self.remote.id.topic:
                copy = objects.setdefault(key.segment_id, CopyObjects(key.base_offset, key.segment_id, {}))
                copy.by_kind[key.kind] = TierObject(name, identity)
        claims = (parse_claim_key(name) for name, _ in self._listed(os.path.dirname(self.claim_file(0, 0).path)))
        self.claims = sorted((each.start_offset, each.end_offset) for each in claims if each is not None)
        self._take(RemoteCopy.of(TierLayout.AIVEN, each) for each in objects.values())

    def _listed(self, directory: str) -> Iterator[tuple[str, FileIdentity]]:
        """Keys from the root on; nothing where there is no such directory."""
        below = directory.removeprefix(f"{self.remote.base}/")
        try:
            for name, status in self.remote.base.at(directory).list_below():
                yield f"{below}/{name}", FileIdentity.of(status)
        except GoneFileError:
            return
        except ReadFailedError as error:
            if error.errno != errno.ENOENT:
                raise

    def completed(self, start_offset: int, segment_id: bytes) -> RemoteCopy | None:
        """A copy as it is now; None if an object of it is missing, or its manifest cannot be read.

        Raises:
            ReadFailedError: the store failed.
        """
        copy = CopyObjects(start_offset, segment_id, {})
        for kind in AivenObject:
            file = self.file(start_offset, segment_id, kind)
            end = file.read_end(1)
            if end is None:
                return None
            copy.by_kind[kind] = TierObject(file.path.removeprefix(f"{self.remote.base}/"), FileIdentity(end[0], 0, 0))
        self._take([RemoteCopy.of(TierLayout.AIVEN, copy)])
        return self.remote.copies.get(segment_id)

    def _take(self, copies: Iterable[RemoteCopy]) -> None:
        """Takes the copies that are complete, and whose manifests can be read."""
        complete = {copy.segment_id: copy for copy in copies if not copy.missing}
        self.remote.copies |= complete
        self.remote.read_facts(complete.values())
        for segment_id, copy in complete.items():
            if copy.facts.fault is not None:
                del self.remote.copies[segment_id]

    def sharing(self, start_offset: int, end_offset: int) -> Sequence[RemoteCopy]:
        """The complete copies that hold some of a range of offsets, and not all of it."""
        whole = self.covering(start_offset, end_offset)
        return [
            each
            for each in self.remote.copies.values()
            if each not in whole and each.start_offset <= end_offset and last_offset(each) >= start_offset
        ]

    def claims_across(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """The claims that share offsets with a range, and are not equal to it: of an uploader whose segments have other base offsets."""
        own = (start_offset, end_offset)
        return [each for each in self.claims if each != own and each[0] <= end_offset and each[1] >= start_offset]

    def covering(self, start_offset: int, end_offset: int) -> Sequence[RemoteCopy]:
        """The complete copies that hold a range of offsets."""
        return [
            each for each in self.remote.copies.values() if each.start_offset <= start_offset and last_offset(each) >= end_offset
        ]
