"""What clients were told, so that it can be held against what a disk kept.

Owns: promises and attempts per topic instance, and the check of a recovered state against them.
Must not know: how anything is stored.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from logqueue.core.state import State
from tests.core.world import World


class Batch(NamedTuple):
    """One append as its client sees it: the reply's seqs and the data sent."""

    seqs: range
    data: tuple[int, ...]


class Promises:
    """Everything said about one topic.

    Attributes:
        shown: Batches whose append was answered, in order.
        gone: Seqs that somebody tried to remove, by ack, delete, eviction or diversion.
        acked: Seqs whose removal was answered.
        tried: Data of appends that were attempted, answered or not.
        given: What was found under a seq in any life.
    """

    def __init__(self, durability: str, trims: bool) -> None:
        self.durability = durability
        self.trims = trims
        self.shown: list[Batch] = []
        self.gone: set[int] = set()
        self.acked: set[int] = set()
        self.tried: list[tuple[int, ...]] = []
        self.given: dict[int, int] = {}

    def head(self) -> int:
        """Highest seq a client was told of."""
        return self.shown[-1].seqs[-1] if self.shown else 0


class Ledger:
    """The promises of all topics; survives crashes, as clients do."""

    def __init__(self) -> None:
        self.topics: dict[str, Promises] = {}
        self.configs: dict[str, dict[str, Any]] = {}
        self.deliveries = 0

    def check(self, state: State, *, power_cut: bool) -> None:
        """Hold a recovered state against what was said."""
        for name, promises in self.topics.items():
            topic = state.topics.get(name)
            assert topic is not None, f"{name}: a topic that was answered for is gone"
            live = {s: r for b in topic.batches for s, r in _numbered(b)}
            self._check_whole(name, promises, live)
            if promises.durability == "ephemeral":
                assert not live, f"{name}: records of a class that keeps none"
                continue
            kept_all = promises.durability == "fsync" or not power_cut
            if kept_all:
                self._check_kept(name, promises, live)
            if promises.durability in ("disk", "fsync"):
                assert topic.head >= promises.head(), f"{name}: a shown seq may come twice"
                for seq, data in live.items():
                    earlier = promises.given.setdefault(seq, data)
                    assert earlier == data, f"{name}: seq {seq} was {earlier}, now {data}"

    @staticmethod
    def _check_whole(name: str, promises: Promises, live: dict[int, int]) -> None:
        """No half batches, nothing that was not written, and a prefix of what was written."""
        seq_of = {data: seq for seq, data in live.items()}
        assert len(seq_of) == len(live), f"{name}: a record is there twice"
        known = {data for batch in promises.tried for data in batch}
        assert seq_of.keys() <= known, f"{name}: records that were never written"
        lost = False
        for batch in promises.tried:
            there = [data in seq_of for data in batch]
            if not any(there):
                shown = next((b for b in promises.shown if b.data == batch), None)
                lost = lost or (shown is not None and not promises.gone.issuperset(shown.seqs))
                continue
            assert not lost or promises.trims, f"{name}: {batch} is kept, an earlier one is not"
            seqs = {seq_of[data] - i for i, data in enumerate(batch) if data in seq_of}
            assert len(seqs) == 1, f"{name}: {batch} is not in one piece"
            first = seqs.pop()
            for index, found in enumerate(there):
                assert found or first + index in promises.gone or promises.trims, (
                    f"{name}: half a batch, {first + index} of {batch} is missing"
                )

    @staticmethod
    def _check_kept(name: str, promises: Promises, live: dict[int, int]) -> None:
        for batch in promises.shown:
            for seq, data in zip(batch.seqs, batch.data, strict=True):
                if seq in promises.acked:
                    assert seq not in live, f"{name}: {seq} was done and is back"
                elif seq not in promises.gone and not promises.trims:
                    assert live.get(seq) == data, f"{name}: {seq} was promised and is lost"

    def settle(self, world: World) -> None:
        """After a crash: what the disk kept is the truth from now on, as clients would find."""
        for name, promises in self.topics.items():
            topic = world.state.topics[name]
            live = {s: r for b in topic.batches for s, r in _numbered(b)}
            tried = [b for b in promises.tried if any(d in live.values() for d in b)]
            promises.tried = tried
            seq_of = {data: seq for seq, data in live.items()}
            promises.shown = []
            promises.gone = set()
            promises.acked = {s for s in promises.acked if promises.durability == "fsync"}
            for batch in tried:
                first = next(seq_of[d] - i for i, d in enumerate(batch) if d in seq_of)
                shown = Batch(range(first, first + len(batch)), batch)
                promises.shown.append(shown)
                promises.gone |= {s for s in shown.seqs if s not in live}


def _numbered(batch: Any) -> list[tuple[int, int]]:
    """Seq and data of a batch's live records; a record's data is a number of its own."""
    return [(seq, msgspec.json.decode(texts[0])) for seq, _, texts in batch.records()]
