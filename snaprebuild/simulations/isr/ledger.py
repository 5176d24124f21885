"""What an observer of the simulated cluster knows, and nobody in it: which records are committed, who has them, and what is lost.

A record is committed when the high watermark of a leader passes it, and lost when somebody begins to lead without it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from snaprebuild.simulations.isr.replica import Entry, Replica
from snaprebuild.simulations.isr.steps import Cause, Loss

__all__ = ["Ledger", "ids_text"]


class Ledger:
    """Watches the replicas.

    Attributes:
        committed: records, by offset.
        losses: so far.
        stale_joins: how often a replica joined for what an earlier process of it had fetched.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        """Nothing is committed yet.

        Args:
            tell: takes what happens, in words.
        """
        self.committed: list[Entry] = []
        self.losses: list[Loss] = []
        self.stale_joins = 0
        self._tell = tell
        # In-sync replicas of whom nobody may rely on: joined by a stale epoch, or last and back with a new process.
        self._stale: set[int] = set()
        self._kept: set[int] = set()

    def lacking(self, replica: Replica) -> range:
        """Offsets of committed records that are not on its disk."""
        both = zip(self.committed, replica.log, strict=False)
        end = next((offset for offset, (committed, own) in enumerate(both) if committed != own), None)
        return range(min(len(self.committed), len(replica.log)) if end is None else end, len(self.committed))

    def is_thin(self, in_sync: Collection[Replica], may_lead: Collection[int]) -> bool:
        """An in-sync replica that may lead lacks committed records that another one has.

        Args:
            in_sync: replicas.
            may_lead: ids of brokers that can be elected.
        """
        lacking = {each.id for each in in_sync if self.lacking(each)}
        return not lacking.isdisjoint(may_lead) and len(lacking) < len(in_sync)

    def advance(self, leader: Replica) -> None:
        """A leader looks at its high watermark: what it passes is committed."""
        for offset in leader.advance_high_watermark():
            entry = leader.log[offset]
            self._tell(f"record {entry.number} is committed: {_members_text(leader)}")
            if offset < len(self.committed):
                if self.committed[offset] == entry:
                    continue
                self._lose(leader, offset)
            self.committed.append(entry)

    def begins_to_lead(self, leader: Replica) -> None:
        """Somebody begins to lead, with what it has."""
        lacking = self.lacking(leader)
        if lacking:
            self._lose(leader, lacking[0])

    def _lose(self, leader: Replica, offset: int) -> None:
        assert leader.leading is not None
        cause = Cause.STALE_EPOCH if leader.id in self._stale else Cause.LAST_MEMBER if leader.id in self._kept else Cause.OTHER
        records = tuple(entry.number for entry in self.committed[offset:])
        self.losses.append(Loss(leader.id, leader.leading.leader_epoch, offset, records, cause))
        del self.committed[offset:]
        self._tell(f"LOST: {_records_text(records)}, committed, which broker {leader.id} does not have")

    # ------------------------------------------------------------------------------------------------------------ whom to trust

    def joined_by_stale_fetch(self, replica: Replica, leader: Replica) -> None:
        """A replica is in sync for what an earlier process of it had fetched, and its leader may count on that for what it commits."""
        self.stale_joins += 1
        known = leader.leading and leader.leading.followers.get(replica.id)
        if self.lacking(replica) or (known and known.log_end > len(replica.log)):
            self._stale.add(replica.id)
        self._tell(f"broker {replica.id} is in sync for what an earlier process of it had fetched")

    def stays_as_last(self, replica: Replica) -> None:
        """A new process registered, and its replica stays in sync, as there is no other."""
        self._kept.add(replica.id)
        self._tell(f"broker {replica.id} stays in sync, as the last one")

    def fetched(self, broker_id: int, log_end: int) -> None:
        """A process that runs now has what it told when it fetched."""
        if log_end >= len(self.committed):
            self._stale.discard(broker_id)

    def in_sync_are(self, isr: Collection[int]) -> None:
        """After a change by the controller: who is out of sync is forgotten."""
        self._stale.intersection_update(isr)
        self._kept.intersection_update(isr)


def ids_text(ids: Iterable[int]) -> str:
    """With commas between them."""
    return ", ".join(map(str, ids))


def _members_text(leader: Replica) -> str:
    assert leader.leading is not None
    ids = sorted(leader.leading.maximal_isr)
    return f"broker {ids[0]} has it" if len(ids) == 1 else f"brokers {ids_text(ids)} have it"


def _records_text(records: tuple[int, ...]) -> str:
    return f"record{'s' * (len(records) > 1)} {ids_text(records)}"
