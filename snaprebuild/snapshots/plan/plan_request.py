"""The request of a rebuild: as plans and receipts have it, and as a run works with it."""

from __future__ import annotations

import dataclasses
import os
from typing import Annotated

from msgspec.structs import asdict, replace

from snaprebuild.errors import UsageError
from snaprebuild.published import Natural, Part, Positive, one_of
from snaprebuild.snapshots.destination.destinations import Below, Destination, InPlace, NextToBroker, Staged
from snaprebuild.snapshots.engine.partition_replay import ReplayFrom
from snaprebuild.snapshots.source.selection import Selection
from snaprebuild.storage.file_facts import Nameable
from snaprebuild.storage.store import USUAL_S3, S3Connection, S3Settings, absolute, is_object

__all__ = ["RebuildRequest", "SavedRequest"]

BOUNDARIES = ("missing", "all")
REPLAY_STARTS = tuple(each.value for each in ReplayFrom)


class SavedRequest(Part, frozen=True):
    """The request of a run, as plans, receipts and documents have it."""

    paths: tuple[Nameable, ...]
    """Absolute paths."""
    server_properties: Nameable | None = None
    topics: tuple[Nameable, ...] = ()
    """Shell patterns; empty for all."""
    partitions: tuple[Natural, ...] = ()
    """Empty for all."""
    topic_partitions: tuple[Nameable, ...] = ()
    """Names of partitions that are taken besides those of the patterns and numbers; empty for none."""
    offset_from: Natural | None = None
    offset_to: Natural | None = None
    out: Nameable | None = None
    """Absolute path; null for in place."""
    boundaries: Annotated[str, one_of(*BOUNDARIES)] = "missing"
    replay_from: Annotated[str, one_of(*REPLAY_STARTS)] = "auto"
    set_aside: bool = False
    """Snapshots that are proven wrong are renamed, and replaced."""
    check_crc: bool = True
    drop_expired: bool = False
    """Entries of expired producers are left out."""
    allow_unproven: bool = False
    """Unproven snapshots are written in place, too."""
    as_of_ms: Natural = 0
    expiration_ms: Positive | None = None
    metadata: Nameable | None = None
    """Location of the named metadata log of the cluster; null for each broker's own."""
    s3: S3Connection | None = None
    """Null if no object store is used."""
    stage: tuple[Nameable, ...] = ()
    """Absolute directories in which snapshots are staged; empty otherwise."""
    broker_running: bool = False
    """Snapshots are written while the broker runs."""
    accept_topic_id_zero: bool = False
    """Snapshots of topics without an id are written, too."""
    kafka_release: str | None = None
    """Release that starts the broker next; null for all that are possible."""


class RebuildRequest(SavedRequest, frozen=True):
    """The request of a run, with what follows from it. A saved plan has the request, so that it can be made again and compared.

    Attributes:
        s3: how object stores are reached, also if none is concerned.
    """

    s3: S3Settings = USUAL_S3

    @classmethod
    def of(cls, document: SavedRequest) -> RebuildRequest:
        """The request that a document shows, for a run of its own."""
        s3 = USUAL_S3 if document.s3 is None else S3Settings(*dataclasses.astuple(document.s3)).for_run()
        return cls(**{**asdict(document), "s3": s3})

    @property
    def destination(self) -> Destination:
        """Where the snapshots go. Only this reads ``out``, ``stage`` and ``broker_running``, which are how a saved plan names it."""
        if self.out is not None:
            return Below(self.out)
        if self.stage:
            return Staged(self.stage)
        return NextToBroker() if self.broker_running else InPlace()

    def in_place_now(self) -> RebuildRequest:
        """The request of snapshots that were staged, for what is written in place after the stop."""
        return replace(self, stage=())

    @property
    def begins_empty(self) -> bool:
        """Whether "log-start" means the state that begins empty at the first segment, wherever the log begins. So it does elsewhere."""
        return not self.destination.is_for_broker and self.replay_from == ReplayFrom.LOG_START.value

    @property
    def document(self) -> SavedRequest:
        """The members as documents and files show them: ``s3`` is None where no object store is concerned."""
        concerns_objects = any(map(is_object, (*self.paths, self.out or "", self.metadata or "")))
        return SavedRequest(**{**asdict(self), "s3": self.s3.connection if concerns_objects else None})

    def checked(self) -> RebuildRequest:
        """The request of a command: checked, with absolute paths.

        Raises:
            UsageError: it makes none.
        """
        if not all((*self.paths, *(path for path in (self.server_properties, self.out, self.metadata) if path is not None))):
            raise UsageError("a path is empty")
        if self.boundaries not in BOUNDARIES:
            raise UsageError(f"boundaries: expected {', '.join(BOUNDARIES)}, found {self.boundaries!r}")
        if self.replay_from not in REPLAY_STARTS:
            raise UsageError(f"replay_from: expected {', '.join(REPLAY_STARTS)}, found {self.replay_from!r}")
        self._check_one_destination()
        self.destination.check(self)
        if self.set_aside and any(map(is_object, self.paths)):
            raise UsageError("--set-aside renames files, and objects are never renamed or removed")
        return replace(
            self,
            paths=tuple(map(absolute, self.paths)),
            server_properties=None if self.server_properties is None else os.path.abspath(self.server_properties),
            partitions=tuple(sorted(self.partitions)),
            topic_partitions=tuple(sorted(self.topic_partitions)),
            out=None if self.out is None else absolute(self.out),
            metadata=None if self.metadata is None else absolute(self.metadata),
            s3=self.s3.for_run(),
            stage=tuple(map(os.path.abspath, self.stage)),
        )

    def _check_one_destination(self) -> None:
        if self.stage and self.broker_running:
            raise UsageError("--to writes nothing into the log directories, --broker-running does: use only one of them")
        if self.out is not None and (self.stage or self.broker_running):
            option = "--to" if self.stage else "--broker-running"
            raise UsageError(f"{option} and --out name different places: use only one of them")

    @property
    def selection(self) -> Selection:
        """The partitions and boundaries asked for."""
        return Selection(
            self.topics, frozenset(self.partitions), self.offset_from, self.offset_to, frozenset(self.topic_partitions)
        )
