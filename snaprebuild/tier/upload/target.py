"""One partition in remote storage for an uploader: locations of objects, complete copies, and claims."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

from formats.errors import FormatError
from formats.remote.aiven_key import AivenObject, aiven_key, parse_aiven_key
from formats.remote.upload_claim import CLAIM_BYTES_MAX, ClaimKey, UploadClaim, parse_claim_key, read_claim
from snaprebuild.errors import GoneFileError, ReadFailedError, RefusedError
from snaprebuild.storage.remote.listing import TierCopy, TierLayout, TierObject
from snaprebuild.storage.store import FileIdentity
from snaprebuild.storage.store_path import StorePath
from snaprebuild.storage.thread_pool import map_in_threads
from snaprebuild.tier.copies import CopyFacts, copy_facts, missing_objects

__all__ = ["CompleteCopy", "UploadTarget"]


@dataclass(frozen=True, slots=True)
class CompleteCopy:
    """A copy whose three objects are there.

    Attributes:
        segment_id: 16 bytes.
        start_offset: of the segment.
        end_offset: last offset; -1 if its manifest does not have it.
        is_encrypted: by the plugin.
        manifest: its bytes; None if it is not known.
        indexes: identity of the ``.indexes`` object; None if it is not known.
    """

    segment_id: bytes
    start_offset: int
    end_offset: int
    is_encrypted: bool = False
    manifest: bytes | None = field(default=None, repr=False)
    indexes: FileIdentity | None = None


@dataclass(slots=True)
class UploadTarget:
    """A partition in a store.

    Attributes:
        root: that keys are below.
        prefix: ``key.prefix``, before the topic.
        topic: name.
        topic_id: 16 bytes.
        partition: number.
        copies: that are complete, by id; none before ``look``.
        claims: (first offset, last offset) of each; none before ``look``.
    """

    root: StorePath
    prefix: str
    topic: str
    topic_id: bytes
    partition: int
    copies: dict[bytes, CompleteCopy] = field(default_factory=dict)
    claims: list[tuple[int, int]] = field(default_factory=list)

    def file(self, start_offset: int, segment_id: bytes, kind: AivenObject) -> StorePath:
        """An object of a copy."""
        key = aiven_key(self.prefix, self.topic, self.topic_id, self.partition, start_offset, segment_id, kind)
        return self.root.below(key)

    def claim_file(self, start_offset: int, end_offset: int) -> StorePath:
        """The claim of a segment."""
        return self.root.below(str(ClaimKey(self.prefix, self.topic_id, self.partition, start_offset, end_offset)))

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

    def look(self) -> None:
        """Finds the copies that are complete, and the claims.

        Raises:
            ReadFailedError: the store cannot be listed.
        """
        found: dict[bytes, TierCopy] = {}
        for name, identity in self._listed(os.path.dirname(self.file(0, bytes(16), AivenObject.LOG).path)):
            key = parse_aiven_key(name)
            if key is not None and key.head == self.prefix + self.topic:
                copy = found.setdefault(key.segment_id, TierCopy(key.base_offset, key.segment_id, {}))
                copy.objects[key.kind] = TierObject(name, identity)
        claims = (parse_claim_key(name) for name, _ in self._listed(os.path.dirname(self.claim_file(0, 0).path)))
        self.claims = sorted((each.start_offset, each.end_offset) for each in claims if each is not None)
        whole = [copy for copy in found.values() if not missing_objects(TierLayout.AIVEN, copy)]
        facts = map_in_threads(partial(copy_facts, self.root, TierLayout.AIVEN), whole)
        for copy, known in zip(whole, facts, strict=True):
            self._take(copy, known)

    def _listed(self, directory: str) -> Iterator[tuple[str, FileIdentity]]:
        """Keys from the root on; nothing where there is no such directory."""
        below = directory.removeprefix(f"{self.root}/")
        try:
            for name, status in self.root.at(directory).list_below():
                yield f"{below}/{name}", FileIdentity.of(status)
        except GoneFileError:
            return
        except ReadFailedError as error:
            if error.errno != errno.ENOENT:
                raise

    def completed(self, start_offset: int, segment_id: bytes) -> CompleteCopy | None:
        """A copy as it is now; None if an object of it is missing, or its manifest cannot be read.

        Raises:
            ReadFailedError: the store failed.
        """
        copy = TierCopy(start_offset, segment_id, {})
        for kind in AivenObject:
            file = self.file(start_offset, segment_id, kind)
            found = file.read_end(1)
            if found is None:
                return None
            copy.objects[kind] = TierObject(file.path.removeprefix(f"{self.root}/"), FileIdentity(found[0], 0, 0))
        self._take(copy, copy_facts(self.root, TierLayout.AIVEN, copy))
        return self.copies.get(segment_id)

    def _take(self, copy: TierCopy, known: CopyFacts) -> None:
        if known.fault is None:
            end = -1 if known.end_offset is None else known.end_offset
            self.copies[copy.segment_id] = CompleteCopy(
                segment_id=copy.segment_id,
                start_offset=copy.base_offset,
                end_offset=end,
                is_encrypted=known.key_id is not None,
                manifest=known.manifest,
                indexes=copy.objects[AivenObject.INDEXES].identity,
            )

    def sharing(self, start_offset: int, end_offset: int) -> list[CompleteCopy]:
        """The complete copies that hold some of a range of offsets, and not all of it."""
        whole = self.covering(start_offset, end_offset)
        return [
            each
            for each in self.copies.values()
            if each not in whole and each.start_offset <= end_offset and each.end_offset >= start_offset
        ]

    def claims_across(self, start_offset: int, end_offset: int) -> list[tuple[int, int]]:
        """The claims that share offsets with a range, and are not equal to it: of an uploader whose segments have other base offsets."""
        own = (start_offset, end_offset)
        return [each for each in self.claims if each != own and each[0] <= end_offset and each[1] >= start_offset]

    def covering(self, start_offset: int, end_offset: int) -> list[CompleteCopy]:
        """The complete copies that hold a range of offsets."""
        return [each for each in self.copies.values() if each.start_offset <= start_offset and each.end_offset >= end_offset]
