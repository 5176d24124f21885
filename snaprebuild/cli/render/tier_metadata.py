"""Records of ``__remote_log_metadata`` as the verb `tier metadata` shows them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from formats.partition.partition_metadata import uuid_from_text
from snaprebuild.cli.answer import repeated_words, selects_nothing
from snaprebuild.cli.printing import print_table, print_undo
from snaprebuild.cli.render.status import answer_lines, copy_counts, faults_text, nothing_read
from snaprebuild.cli.value_text import id_labels, shown, size_text
from snaprebuild.cli.view import AGAIN, Advice, Answer, View
from snaprebuild.findings import Finding, pluralize
from snaprebuild.published import encoded_members
from snaprebuild.storage.local.document_file import new_file
from snaprebuild.tier.expiration import ExpectedDeletion
from snaprebuild.tier.metadata.store_records import StoreRecords, TierMetadata
from snaprebuild.tier.metadata.topic_directories import WrittenDirectory
from snaprebuild.tier.upload.announce import record_lines

__all__ = ["MetadataOutput", "TierMetadataView"]


@dataclass
class MetadataOutput:
    """Where records go.

    Attributes:
        records_file: path of the file that gets them, or None.
        produced_to: bootstrap servers that get them, or None.
        dry_run: nothing is written.
        directories: of ``__remote_log_metadata`` that were written, or would be.
        receipt: path of it; None if no directory was written.
        deletions: by the first pass of leaders; None if that is not known.
        accepted_deletions: the number of these that the user has typed.
        accepted_gap_segments: the number of their own segments that leaders delete, as the user has typed it; None without one.
    """

    records_file: str | None
    produced_to: str | None
    dry_run: bool
    directories: Sequence[WrittenDirectory] = ()
    receipt: str | None = None
    deletions: Sequence[ExpectedDeletion] | None = None
    accepted_deletions: int = 0
    accepted_gap_segments: int | None = None


class TierMetadataView(View):
    """The records of a store, and where they were written."""

    prints_notes = True
    names_unread = True

    def __init__(self, records: StoreRecords, output: MetadataOutput, start_concerns: Sequence[Finding] = ()) -> None:
        """Takes the result.

        Args:
            records: of the store.
            output: where they went, or would go.
            start_concerns: about the next start of the brokers whose log directories were named.
        """
        super().__init__([*records.findings, *start_concerns])
        self._records = records
        self._output = output

    @property
    def _writes_file(self) -> bool:
        return self._output.records_file is not None and not self._output.dry_run and not self._records.is_refused

    @property
    def _is_produced(self) -> bool:
        return self._output.produced_to is not None and not self._output.dry_run and not self._records.is_refused

    @property
    def _only_compares(self) -> bool:
        """Whether the command compares objects with the records of a whole metadata log, to which nothing is to be added."""
        return self._records.verified and not self._output.dry_run

    @property
    def _gap_segments(self) -> int:
        return sum(len(each.part.gap_segments or ()) for each in self._records.partitions)

    def document(self) -> TierMetadata:
        records = self._records
        status = records.status
        return TierMetadata(
            location=records.location,
            verified=records.verified,
            metadata_partitions=records.metadata_partitions,
            records=2 * len(records.written_copies),
            dry_run=self._output.dry_run,
            records_file=self._output.records_file if self._writes_file else None,
            log_dirs=self._output.directories,
            produced_to=self._output.produced_to if self._is_produced else None,
            expected_deletions=self._output.deletions,
            receipt=self._output.receipt,
            totals=records.totals,
            partitions=[each.part for each in records.partitions],
            status=status.word,
            counts=status.counts,
        )

    def answer(self) -> Answer:
        """Counts of records that were written or may be, and the reasons that keep others from being written."""
        records = self._records
        if selects_nothing(self.findings) and not records.partitions:
            return nothing_read(self.findings)
        status = records.status
        read = pluralize(len(records.partitions), "partition")
        partitions = pluralize(sum(each.part.records > 0 for each in records.partitions), "partition")
        count = pluralize(2 * len(records.written_copies), "record")
        what = f"{count} of {partitions}"
        if records.writes and records.is_refused:
            head = f"{faults_text(status)}Refused, nothing was written: {count} of {read}"
        elif self._writes_file or self._is_produced or self._output.receipt is not None:
            head = f"{faults_text(status)}{what} written"
        elif self._output.dry_run:
            head = f"{faults_text(status)}Dry run: nothing was written. {what}"
        else:
            head = copy_counts(status, read if faults_text(status) else partitions, f"{count} can be rebuilt")
        totals = ", ".join(f"{number} {name}" for name, number in encoded_members(records.totals).items() if number)
        extra = [f"Copies: {totals or 'none'}."]
        if self._output.deletions is not None:
            extra.append(f"The first pass of the leaders deletes {pluralize(len(self._output.deletions), 'copy', 'copies')}.")
        if self._gap_segments:
            extra.append(
                f"Leaders delete {pluralize(self._gap_segments, 'segment')} of their own with offsets that are in no copy."
            )
        if not records.verified:
            extra.append("No state is proven without a whole metadata log (--metadata-log).")
        return answer_lines(status, self.findings, [head], extra), self._following()

    def _following(self) -> Sequence[str] | Advice:
        records = self._records
        if self._output.receipt is not None:
            return Advice("start all brokers with a replica of __remote_log_metadata")
        if records.is_refused:
            if records.writes:
                return AGAIN
            return Advice("before records are written, give what stderr lists for each partition")
        if not records.writes:
            has_records = bool(records.written_copies) and not self._only_compares
            if has_records:
                return Advice("name where they go: --records-file, --log-dirs or --produce-to")
            return []
        if self._output.dry_run:
            return self._after_dry_run()
        if self._writes_file:
            return Advice("produce the records to their partitions of an empty __remote_log_metadata, while no leader uploads")
        return []

    def _after_dry_run(self) -> Sequence[str] | Advice:
        """The command that writes the records, or the numbers that somebody has to type first, after a look at the tables."""
        tables = list[str]()
        options = list[str]()
        accepted = self._output.accepted_gap_segments
        if accepted is not None and accepted != self._gap_segments:
            options.append(f"--allow-gaps {self._gap_segments}")
            if self._gap_segments:
                tables.append("segments")
        deletions = self._output.deletions
        if deletions is not None and len(deletions) != self._output.accepted_deletions:
            options.append(f"--deletes {len(deletions)}")
            if deletions:
                tables.append("copies")
        if not options:
            return ["tier", "metadata", *repeated_words("dry_run")]
        look = f"look at the {' and '.join(tables)} below, then " if tables else ""
        return Advice(f"{look}give {' and '.join(options)}")

    def print_table(self) -> None:
        partitions = [each.part for each in self._records.partitions]
        ids = id_labels((each.topic, uuid_from_text(each.topic_id)) for each in partitions)
        rows = []
        for each in partitions:
            label = each.topic_partition + ids.get((each.topic, uuid_from_text(each.topic_id)), "")
            counts = ", ".join(f"{count} {decision}" for decision, count in sorted(each.decisions.items()))
            refusals = ", ".join(refusal.cause for refusal in each.refusals)
            rows.append((label, each.log_start_offset, each.next_offset, each.records, counts, refusals or "-"))
        if rows:
            columns = ("partition", "log start", "uploads go on at", "records", "copies", "write refused")
            print_table("Remote log metadata", columns, rows, right=columns[1:4])
        if self._output.directories:
            if self._output.receipt is None:
                title = "Directories that would be written"
            else:
                title = "Directories that were written"
            places = [
                (shown(each.path), each.node_id, each.records, size_text(each.size_bytes)) for each in self._output.directories
            ]
            print_table(title, ("directory", "broker", "records", "size"), places, right=("broker", "records", "size"))
        self._print_gap_segments()
        if self._output.deletions:
            deleted = [(each.start_offset, each.segment_id, each.deletion_reason) for each in self._output.deletions]
            print_table("Deleted by the first pass", ("from offset", "segment", "because"), deleted, right=("from offset",))
        print_undo(self._output.receipt)

    def _print_gap_segments(self) -> None:
        segments = [
            (each.part.topic_partition, segment) for each in self._records.partitions for segment in each.part.gap_segments or ()
        ]
        rows = [(name, each.start_offset, each.end_offset, size_text(each.segment_bytes)) for name, each in segments]
        if rows:
            columns = ("partition", "from offset", "to offset", "size")
            print_table("Segments that leaders delete, with offsets in no copy", columns, rows, right=columns[1:])

    def write_files(self) -> None:
        """Writes the file of the records."""
        if self._writes_file and self._output.records_file is not None:
            records = self._records
            with new_file(self._output.records_file) as file:
                file.writelines(line.encode() for line in record_lines(records.written_copies, records.metadata_partitions))
