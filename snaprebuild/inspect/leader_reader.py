"""Reads the leaders of partitions from the metadata log that is named, or else from the one in the log directories."""

from __future__ import annotations

import os
from collections.abc import Collection

from snaprebuild.cluster.metadata.leadership import Leaderships, read_leaderships
from snaprebuild.cluster.metadata.registered_model import METADATA_DIRECTORY
from snaprebuild.errors import SnaprebuildError
from snaprebuild.findings import Finding, finding_of_error
from snaprebuild.snapshots.run import Run
from snaprebuild.snapshots.source.source import Source

__all__ = ["LeaderReader"]


class LeaderReader:
    """The metadata log that shows who leads.

    Attributes:
        findings: of the log, after it was read.
    """

    def __init__(self, location: str | None, source: Source, run: Run) -> None:
        """Reads nothing yet.

        Args:
            location: of a metadata log; None for the one in the log directories of ``source``.
            source: the partitions whose transactions are read.
            run: how objects are read.
        """
        self._location = location
        self._source = source
        self._run = run
        self.findings: tuple[Finding, ...] = ()

    def read(self, partitions: Collection[tuple[str, int]]) -> Leaderships | None:
        """The leaders of partitions; None without a log that can be read.

        Args:
            partitions: topics and numbers.

        Raises:
            UsageError, ReadFailedError: the log that was named cannot be read.
        """
        if self._location is not None:
            return self._read_log(self._location, partitions)
        for log_dir in self._source.log_dirs:
            path = os.path.join(log_dir.path, METADATA_DIRECTORY)
            try:
                if log_dir.store.names_in(path):
                    return self._read_log(path, partitions)
            except SnaprebuildError as error:
                self.findings = (finding_of_error(error, path),)
        return None

    def _read_log(self, path: str, partitions: Collection[tuple[str, int]]) -> Leaderships:
        leaderships = read_leaderships(path, partitions, self._run)
        self.findings = leaderships.findings
        return leaderships
