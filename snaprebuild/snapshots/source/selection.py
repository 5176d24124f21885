"""Which of the partitions and boundaries that a command finds it takes."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Collection

import msgspec

from snaprebuild.findings import Finding, FindingCause, Severity, first_of, pluralize
from snaprebuild.shell_words import option_words, shell_command
from snaprebuild.storage.partition_dir import PartitionDir

__all__ = ["EVERYTHING", "Selection"]


class Selection(msgspec.Struct, frozen=True):
    """The selected partitions and boundaries.

    Attributes:
        topics: shell patterns, empty for all.
        partitions: partition numbers, empty for all.
        offset_from: least boundary, inclusive, or None.
        offset_to: greatest boundary, inclusive, or None.
        topic_partitions: names of partitions, such as ``orders-0``, which are taken besides those of the patterns and numbers.
    """

    topics: tuple[str, ...] = ()
    partitions: frozenset[int] = frozenset()
    offset_from: int | None = None
    offset_to: int | None = None
    topic_partitions: frozenset[str] = frozenset()

    @property
    def is_narrowed(self) -> bool:
        """Whether some partitions may be left out."""
        return bool(self.topics or self.partitions or self.topic_partitions)

    @property
    def words(self) -> list[str]:
        """The selected partitions, as a person names them; empty for all."""
        topics = self.topics or (("partition",) if self.partitions else ())
        numbers = sorted(self.partitions)
        selected = [f"{topic}-{number}" for topic in topics for number in numbers] if numbers else list(topics)
        return [*selected, *sorted(self.topic_partitions)]

    def takes(self, directory: PartitionDir) -> bool:
        """Whether a partition is selected."""
        return self.takes_partition(directory.name.topic, directory.name.partition)

    def takes_partition(self, topic: str, partition: int) -> bool:
        """Whether a topic-partition is selected."""
        if self.topic_partitions:
            if f"{topic}-{partition}" in self.topic_partitions:
                return True
            if not self.topics and not self.partitions:
                return False
        topic_taken = not self.topics or any(fnmatch.fnmatchcase(topic, pattern) for pattern in self.topics)
        return topic_taken and (not self.partitions or partition in self.partitions)

    def why_nothing(self, directories: Collection[PartitionDir]) -> str:
        """Why none of the partitions that were found is selected, and what was probably meant.

        Args:
            directories: all of them, selected or not.
        """
        return self.why_none([(directory.name.topic, directory.name.partition) for directory in directories])

    def why_none(self, partitions: Collection[tuple[str, int]], *, as_options: bool = True) -> str:
        """Why none of the partitions is selected, and what was probably meant.

        Args:
            partitions: topic and number of all that are there.
            as_options: what was meant is shown as options of the command; False for topics by name.
        """
        count = f"{pluralize(len(partitions), 'partition')} found"
        names = {topic for topic, _ in partitions}
        matching = {name for name in names if not self.topics or any(fnmatch.fnmatchcase(name, each) for each in self.topics)}
        if not names:
            return "no partition was found here"
        if self.topic_partitions and not self.topics and not self.partitions:
            return f"{self.why_absent([f'{topic}-{number}' for topic, number in partitions])} ({count})"
        if matching:
            numbers = sorted({number for topic, number in partitions if topic in matching})
            selected = ", ".join(map(str, sorted(self.partitions)))
            there = first_of([str(number) for number in numbers], 10)
            return f"no partition {selected} of the selected topics ({count}; partitions of these topics: {there})"
        hint = self.hint(names, as_options=as_options)
        return f"no topic matches {' or '.join(repr(each) for each in self.topics)} ({count}){hint}"

    def hint(self, names: Collection[str], *, as_options: bool = True) -> str:
        """The topics that were meant, as the end of a sentence about a selection that takes nothing; empty if no topic is selected.

        Args:
            names: of the topics that are there.
            as_options: as options of the command; False for topics by name.
        """
        if not self.topics or not names:
            return ""
        if not as_options:
            close = [each for topic in self.topics for each in difflib.get_close_matches(topic, sorted(names), 1)]
            return f"; did you mean {close[0]!r}?" if close else f"; topics: {first_of(sorted(names), 5)}"
        paths = [each for each in self.topics if "/" in each]
        if paths:
            return f"; {paths[0]} is a path, which needs no option"
        meant = self._meant(frozenset(names))
        return f"; did you mean `{meant}`?" if meant else f"; topics: {first_of(sorted(names), 5)}"

    def absent(self, names: Collection[str]) -> list[str]:
        """The partitions that are named and are not among ``names``, in order."""
        return sorted(self.topic_partitions.difference(names))

    def why_absent(self, names: Collection[str]) -> str:
        """A sentence on the named partitions that are not among ``names``, and what was probably meant."""
        absent = self.absent(names)
        text = f"no partition {' or '.join(map(repr, absent))}"
        close = [each for name in absent for each in difflib.get_close_matches(name, sorted(names), 1)]
        if close:
            return f"{text}; did you mean `{shell_command(option_words('--topic-partition', close[0]))}`?"
        return text

    def absent_findings(self, names: Collection[str], place: str, *, are_others_read: bool = True) -> list[Finding]:
        """A finding for the named partitions that are not among ``names``, and a note for topics that match none of them.

        A list of topics may be the same for all brokers, each of which has some of them.

        Args:
            names: of the partitions that are there, such as ``orders-0``.
            place: path of the finding.
            are_others_read: the result has partitions; without one the finding is the whole result.
        """
        findings = []
        if self.absent(names):
            cause = None if are_others_read else FindingCause.NOTHING_FOUND
            findings.append(Finding("nothing-found", Severity.FINDING, place, self.why_absent(names), cause=cause))
        topics = {name.rpartition("-")[0] for name in names}
        unmatched = tuple(each for each in self.topics if not fnmatch.filter(topics, each))
        if unmatched and are_others_read:
            message = f"no topic matches {' or '.join(map(repr, unmatched))}{msgspec.structs.replace(self, topics=unmatched).hint(topics)}"
            findings.append(Finding("nothing-found", Severity.NOTE, place, message))
        return findings

    def _meant(self, names: frozenset[str]) -> str | None:
        """Options that select something, where a topic looks like one of ``names``."""
        for pattern in self.topics:
            topic, dash, number = pattern.rpartition("-")
            if dash and number.isdecimal() and topic in names:
                return shell_command(option_words("--topic-partition", f"{topic}-{int(number)}"))
            several = [each.strip() for each in pattern.split(",") if each.strip()]
            if len(several) > 1 and names.issuperset(several):
                return " ".join(shell_command(option_words("--topic", each)) for each in several)
            close = difflib.get_close_matches(pattern, sorted(names), 1) or [
                name for name in sorted(names) if name.startswith(pattern)
            ]
            if close:
                return shell_command(option_words("--topic", close[0]))
        return None

    def takes_boundary(self, offset: int) -> bool:
        """Whether a boundary is selected."""
        return (self.offset_from is None or offset >= self.offset_from) and (self.offset_to is None or offset <= self.offset_to)


EVERYTHING = Selection()
