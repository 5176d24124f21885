"""Snapshots of one line of leaders that contradict each other.

What a producer wrote below a snapshot is in it, unless the producer has expired since, and nothing goes backwards. If an entry of a lower
snapshot is missing in an upper one although the producer had not expired when that was written, one of the two is wrong. Which one, two
snapshots do not show: a broker that lost its state writes snapshots that all lack the producer. Only a third one above that has the same
entry again shows it, because an absent entry never comes back.

Expiry is judged by the largest timestamp below the upper snapshot, as a lower bound of the time at which it was written. Producers that
were silent for a day may have expired in any broker (KIP-854). Brokers before 3.4 keep them for seven days, and the setting is dynamic, so
an absent entry between these two ages is only noted.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from formats.partition.producer_snapshot import ENTRY_DTYPE
from snaprebuild.replay.segment_effect import NONE, SegmentEffect, compose, effect_of_entries, entries_of, lookup, sorted_entries
from snaprebuild.replay.window import DEFAULT_EXPIRATION_MS, Clock

__all__ = ["ParsedSnapshot", "SnapshotLine"]

OPEN_MS = -(2**62)
"""Age of an entry with an open transaction, which never expires."""

BATCH_FIELDS = ("last_sequence", "last_offset", "offset_delta")


@dataclass(frozen=True, slots=True, eq=False)
class ParsedSnapshot:
    """A snapshot that parses.

    Attributes:
        offset: its boundary.
        entries: of ``ENTRY_DTYPE``, any order.
        time_ms: largest timestamp of the records below it; None if unknown.
    """

    offset: int
    entries: np.ndarray
    time_ms: int | None


@dataclass(frozen=True, slots=True)
class _Taken:
    """A snapshot that was taken, without its entries: a line may have thousands of them.

    Attributes:
        offset: its boundary.
        count: of its entries.
        time_ms: as of a ``ParsedSnapshot``.
    """

    offset: int
    count: int
    time_ms: int | None


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two snapshots, one of which is wrong, by their numbers."""

    lower: int
    upper: int
    reason: str


@dataclass(slots=True)
class SnapshotLine:
    """The snapshots of one line of leaders, taken in the order of their offsets; each has a number, from 0 on.

    Attributes:
        clock: for expiry; its moment counts only where the time of a snapshot is unknown.
        breaks: numbers of snapshots that do not follow from those below: they contradict them, or differ in what only expiry explains.
        notes: why a snapshot may be wrong if brokers keep idle producers for longer than a day, by number.
    """

    clock: Clock
    breaks: set[int] = field(default_factory=set)
    notes: dict[int, str] = field(default_factory=dict)
    _taken: list[_Taken] = field(default_factory=list)
    _entries: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=ENTRY_DTYPE))
    _holder: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _lacking: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    _is_replayed: bool = False
    _pairs: list[_Pair] = field(default_factory=list)
    _blamed: dict[int, str] = field(default_factory=dict)
    _odd: set[int] = field(default_factory=set)

    @property
    def suspects(self) -> dict[int, str]:
        """Why each of some snapshots may be wrong, by number."""
        suspects = dict(self._blamed)
        for pair in self._pairs:
            if pair.lower not in self._odd or pair.upper in self._odd:
                lower = self._taken[pair.lower].offset
                suspects.setdefault(pair.upper, f"{pair.reason} and the one at {lower} has it: one of the two is wrong")
            if pair.upper not in self._odd:
                upper = self._taken[pair.upper].offset
                suspects.setdefault(
                    pair.lower, f"the one at {upper} contradicts it ({pair.reason.rstrip(',')}): one of the two is wrong"
                )
        return dict(sorted(suspects.items()))

    def advance(self, effect: SegmentEffect) -> None:
        """Takes the effect of the records up to the next snapshot. Without a call, the records between two snapshots are unknown."""
        before = self._entries
        self._is_replayed = True
        self._entries = entries_of(compose(effect_of_entries(before), effect.without_closes()))
        row, found = lookup(_ids(before), _ids(self._entries))
        same = found.copy()
        same[found] = self._entries[found] == before[row[found]]
        self._holder = _mapped(self._holder, row, same)
        self._lacking = _mapped(self._lacking, row, same)

    def take(self, snapshot: ParsedSnapshot) -> None:
        """Takes the next snapshot, and compares it with those below."""
        number = len(self._taken)
        upper = sorted_entries(snapshot.entries).astype(ENTRY_DTYPE)
        self._taken.append(_Taken(snapshot.offset, len(upper), snapshot.time_ms))
        row, found = lookup(_ids(self._entries), _ids(upper))
        holder = np.full(len(upper), number, dtype=np.int64)
        lacking = np.full(len(upper), NONE, dtype=np.int64)
        missing = np.zeros(len(self._entries), dtype=bool)
        if number:
            self._compare_new(number, upper[~found])
            wrong = np.flatnonzero(found)[self._compare_known(number, row[found], upper[found])]
            missing = self._compare_missing(number, upper)
            # What those below have is compared with those above, too.
            upper[wrong] = self._entries[row[wrong]]
            holder[wrong] = self._holder[row[wrong]]
            lacking[wrong] = self._lacking[row[wrong]]
        entries = np.concatenate((upper, self._entries[missing]))
        order = np.argsort(_ids(entries), kind="stable")
        self._entries = entries[order]
        self._holder = np.concatenate((holder, self._holder[missing]))[order]
        self._lacking = np.concatenate((lacking, self._lacking[missing]))[order]

    # ------------------------------------------------------------------------------------------------------------ comparisons

    def _compare_missing(self, number: int, upper: np.ndarray) -> np.ndarray:
        """Compares what those below have and this one lacks. Gives the entries that are remembered all the same."""
        _, present = lookup(_ids(upper), _ids(self._entries))
        age = _ages(self._entries, self._time(number))
        bound = min(self.clock.expiration_ms, DEFAULT_EXPIRATION_MS)
        young = ~present & (age < bound)
        between = ~present & (age >= bound) & (age < self.clock.expiration_ms)
        if between.any():
            text = _lacks(self._entries[between], len(upper))
            self.notes[number] = f"{text}, silent for a day or more: right if a broker forgets idle producers after a day"
        if young.any():
            self._add(number, self._holder[young], f"{_lacks(self._entries[young], len(upper))}, not expired,")
        self._lacking[young & (self._lacking == NONE)] = number
        return young

    def _compare_new(self, number: int, entries: np.ndarray) -> None:
        """Compares what this one has and none below: a batch from below another one should be in that one, too."""
        below = number - 1
        last = entries["last_offset"].astype(np.int64)
        opened = entries["current_txn_first_offset"].astype(np.int64)
        older = np.where(last >= 0, last, opened)
        while below >= 0 and len(entries):
            offset = self._taken[below].offset
            age = _ages(entries, self._time(below))
            lacked = (older >= 0) & (older < offset) & (age < min(self.clock.expiration_ms, DEFAULT_EXPIRATION_MS))
            if not lacked.any():
                break
            reason = _lacks(entries[lacked], self._taken[below].count)
            reason += f": the one at {self._taken[number].offset} has a batch of it from before"
            self._blame_odd(below, reason)
            self.breaks.add(number)
            below -= 1
        if self._is_replayed and len(entries):
            self.breaks.add(number)  # no record between the two explains it

    def _compare_known(self, number: int, row: np.ndarray, upper: np.ndarray) -> np.ndarray:
        """Compares what this one and those below have. Gives the entries of which this one has an older or another state."""
        lower = self._entries[row]
        last = upper["last_offset"].astype(np.int64)
        before = lower["last_offset"].astype(np.int64)
        older = (last >= 0) & (last < before)
        newer = last > before
        changed = ~older & ~newer & self._differs(lower, upper, self._taken[number - 1].offset)
        if older.any():
            holder = int(self._holder[row[older]].max())
            than = "the records below it give" if holder == NONE else f"the one at {self._taken[holder].offset}"
            self._blame(number, f"it has an older state of producer {int(upper['producer_id'][older][0])} than {than}")
        if newer.any():
            self._compare_newer(number, upper[newer])
        if changed.any():
            producer = int(upper["producer_id"][changed][0])
            self._add(
                number, self._holder[row[changed]], f"its entry of producer {producer} is another one, without a batch between,"
            )
        self._find_again(number, row, upper, ~older & ~changed)
        if self._is_replayed and (lower != upper).any():
            self.breaks.add(number)
        wrong: np.ndarray = older | changed
        new = row[wrong]
        self._lacking[new[self._lacking[new] == NONE]] = number
        return wrong

    def _find_again(self, number: int, row: np.ndarray, upper: np.ndarray, is_same: np.ndarray) -> None:
        """An entry that some below lack, and that is there again: this one does not come from them, and they are the odd ones."""
        lacking = self._lacking[row]
        last = upper["last_offset"].astype(np.int64)
        for first in np.unique(lacking[lacking != NONE]).tolist():
            again = is_same & (lacking == first) & (last >= 0) & (last < self._taken[first].offset)
            if not again.any():
                continue
            producer = int(upper["producer_id"][again][0])
            at = self._taken[number].offset
            for between in range(first, number):
                self._blame_odd(between, f"it differs for producer {producer} from those before it and from the one at {at}")

    def _compare_newer(self, number: int, upper: np.ndarray) -> None:
        """Compares batches of this one that are newer than what those below have."""
        last = upper["last_offset"].astype(np.int64)
        if self._is_replayed and (last >= self._taken[number - 1].offset).any():
            producer = int(upper["producer_id"][last >= self._taken[number - 1].offset][0])
            self._blame(number, f"it has a batch of producer {producer} that the records below it do not have")
        for below in range(number - 1, -1, -1):
            wrong = last < self._taken[below].offset
            if not wrong.any():
                return
            producer = int(upper["producer_id"][wrong][0])
            at = int(last[wrong][0])
            reason = (
                f"the one at {self._taken[number].offset} has a batch of producer {producer} at {at}, and this one an older state"
            )
            self._blame_odd(below, reason)
            self.breaks.add(number)

    def _differs(self, lower: np.ndarray, upper: np.ndarray, offset: int) -> np.ndarray:
        """Entries with the same last batch that differ in what only a record between them changes, and none is there."""
        batch = np.zeros(len(lower), dtype=bool)
        for name in BATCH_FIELDS:
            batch |= lower[name] != upper[name]
        opened = upper["current_txn_first_offset"]
        began_below = (opened >= 0) & (opened < offset) & (opened != lower["current_txn_first_offset"])
        if not self._is_replayed:
            # A marker between them may have changed the rest.
            has_batch = upper["last_offset"] >= 0
            found: np.ndarray = (
                has_batch & (batch | (upper["epoch"] != lower["epoch"])) | (upper["epoch"] < lower["epoch"]) | began_below
            )
            return found
        # A producer that expired and came back has lost its batch or its coordinator epoch in one broker, and not in another.
        lost_batch = (lower["last_offset"] < 0) | (upper["last_offset"] < 0)
        lost_epoch = (lower["coordinator_epoch"] < 0) | (upper["coordinator_epoch"] < 0)
        found = (batch & ~lost_batch) | ((lower["coordinator_epoch"] != upper["coordinator_epoch"]) & ~lost_epoch)
        for name in ("epoch", "timestamp", "current_txn_first_offset"):
            found |= lower[name] != upper[name]
        return found

    # ------------------------------------------------------------------------------------------------------------ results

    def _add(self, number: int, holders: np.ndarray, reason: str) -> None:
        """Adds that a snapshot contradicts others below; where only the records have the entry, it alone is suspect."""
        self.breaks.add(number)
        for holder in np.unique(holders).tolist():
            if holder == NONE:
                self._blame(number, f"{reason} and the records below it give it")
            else:
                self._pairs.append(_Pair(holder, number, reason))

    def _blame(self, number: int, reason: str) -> None:
        self.breaks.add(number)
        self._blamed.setdefault(number, reason)

    def _blame_odd(self, number: int, reason: str) -> None:
        """One that those below and above it contradict together: nothing speaks against these."""
        self._odd.add(number)
        self._blame(number, reason)

    def _time(self, number: int) -> int:
        time_ms = self._taken[number].time_ms
        return self.clock.as_of_ms if time_ms is None else time_ms


def _ids(entries: np.ndarray) -> np.ndarray:
    ids: np.ndarray = entries["producer_id"].astype(np.int64)
    return ids


def _ages(entries: np.ndarray, time_ms: int) -> np.ndarray:
    """How long each producer had been silent, ms. A transaction that is open never expires; a timestamp of -1 always has."""
    age = time_ms - entries["timestamp"].astype(np.int64)
    age[entries["timestamp"] < 0] = 2**62
    age[entries["current_txn_first_offset"] >= 0] = OPEN_MS
    found: np.ndarray = age
    return found


def _mapped(values: np.ndarray, row: np.ndarray, same: np.ndarray) -> np.ndarray:
    """Values of the entries that stay the same; NONE for those that records changed."""
    found = np.full(len(row), NONE, dtype=np.int64)
    found[same] = values[row[same]]
    return found


def _named(entries: np.ndarray) -> str:
    more = f" and {len(entries) - 1} more" if len(entries) > 1 else ""
    return f"producer {int(entries['producer_id'][0])}{more}"


def _lacks(entries: np.ndarray, count: int) -> str:
    """The entries that a snapshot with ``count`` entries lacks."""
    return f"{'it lacks' if count else 'it is empty, and lacks'} {_named(entries)}"
