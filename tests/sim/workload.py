"""A day in the life of a small server: every command, every durability class, tiny segments.

Owns: which commands come, from a seed, and telling the ledger what was answered. Must not know:
when the world stops.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain, count
from random import Random

from logqueue.core import commands as cmd
from logqueue.errors import LogqueueError
from tests.core.world import World, job, pack
from tests.sim.ledger import Batch, Ledger, Promises

TOPICS: dict[str, dict[str, object]] = {
    "fsync": {"durability": "fsync"},
    "held": {"durability": "fsync", "leases_durable": True},
    "disk": {"durability": "disk"},
    "memory": {"durability": "memory", "leases_durable": True},
    "ephemeral": {"durability": "ephemeral"},
    "capped": {"durability": "fsync", "cap_records": 7, "discard": "old"},
    "brief": {"durability": "disk", "ttl_ms": 900},
    "poison": {"durability": "fsync", "max_deliveries": 1, "dead_letter": "letters"},
}
TRIMMED = {"capped", "brief"}


class Workload:
    """Commands from a seed, against one world, noted in one ledger."""

    def __init__(self, seed: int, ledger: Ledger) -> None:
        self.rng = Random(seed)
        self.ledger = ledger
        self.numbers = count(1)
        self.held: dict[str, dict[int, str]] = {name: {} for name in TOPICS}

    def begin(self, world: World) -> None:
        """Create all topics."""
        for name, config in TOPICS.items():
            world.put(name, lease_ms=400, **config)
            self.ledger.topics[name] = Promises(str(config["durability"]), name in TRIMMED)
        world.put("letters", type="log", durability="fsync")

    def turn(self, world: World) -> None:
        """One command, and now and then time, tidying or an orderly restart."""
        rng = self.rng
        world.wait(rng.choice((0, 1, 20, 150)))
        steps: list[tuple[int, Callable[[World, str], None]]] = [
            (8, self.append),
            (3, self.append_together),
            (2, self.ack_together),
            (7, self.claim),
            (6, self.ack),
            (2, self.nack),
            (1, self.extend),
            (1, self.release),
            (1, self.delete),
            (1, self.configure),
            (1, self.drop),
        ]
        step = rng.choices([s for _, s in steps], [w for w, _ in steps])[0]
        step(world, rng.choice([*TOPICS]))
        if rng.random() < 0.5:
            world.step()
        if rng.random() < 0.08:
            world.tidy()
        if rng.random() < 0.02:
            self.restart(world)

    def append(self, world: World, name: str) -> None:
        """Append a batch of one to four records, perhaps with a key."""
        rng, promises = self.rng, self.ledger.topics[name]
        data = tuple(next(self.numbers) for _ in range(rng.randrange(1, 5)))
        key = f"k{data[0]}" if rng.random() < 0.4 else None
        promises.tried.append(data)
        pad = {"pad": "x" * rng.choice((0, 10, 200))}
        reply = world.write(name, *[job(d, tag=f"t{d % 3}", meta=pad) for d in data], key=key)
        seqs = range(reply.first_seq, reply.first_seq + reply.records)
        promises.shown.append(Batch(seqs, data))
        if promises.durability in ("disk", "fsync"):
            for seq, number in zip(seqs, data, strict=True):
                assert promises.given.setdefault(seq, number) == number, f"{name}: {seq} twice"
        if key is not None and rng.random() < 0.5:
            again = world.write(name, 0, key=key)
            assert again.deduped and again.first_seq == reply.first_seq

    def append_together(self, world: World, name: str) -> None:
        """Append a few small batches as one turn of the server's loop does."""
        promises = self.ledger.topics[name]
        written = [
            tuple(next(self.numbers) for _ in range(self.rng.randrange(1, 3)))
            for _ in range(self.rng.randrange(2, 5))
        ]
        # They are in one frame: all of them come back, or none.
        promises.tried.append(tuple(chain.from_iterable(written)))
        members = [
            cmd.Append(name, pack([job(d, tag=f"t{d % 3}") for d in data]), len(data))
            for data in written
        ]
        results: list[cmd.AppendResult] = world.run(cmd.Cohort(name, members))
        for data, reply in zip(written, results, strict=True):
            seqs = range(reply.first_seq, reply.first_seq + reply.records)
            promises.shown.append(Batch(seqs, data))
            if promises.durability in ("disk", "fsync"):
                for seq, number in zip(seqs, data, strict=True):
                    assert promises.given.setdefault(seq, number) == number, f"{name}: {seq} twice"

    def ack_together(self, world: World, name: str) -> None:
        """Both nodes ack some of theirs in one turn, and one of them some twice."""
        wanted = [self._some_held(name) for _ in range(3)]
        promises = self.ledger.topics[name]
        named = {seq for _, seqs in wanted for seq in seqs}
        promises.gone |= named
        members = [cmd.AckJobs(name, node, seqs) for node, seqs in wanted]
        results: list[cmd.SettleResult] = world.run(cmd.Cohort(name, members))
        done: set[int] = set()
        for (_, seqs), result in zip(wanted, results, strict=True):
            counted = set(seqs) - set(result.skipped)
            assert len(counted) == result.settled and not counted & done
            done |= counted
        promises.acked |= done
        topic = world.state.topics[name]
        promises.gone -= {seq for seq in named - done if topic.holds(seq)}
        for seq in named:
            self.held[name].pop(seq)

    def claim(self, world: World, name: str) -> None:
        """Claim for a worker, a work stream or a cohort."""
        rng, promises = self.rng, self.ledger.topics[name]
        stream = rng.choice((0, 0, 7))
        if name == "poison":
            # Diversion is decided in the pass: all that was delivered once may go.
            promises.gone.update(world.state.queue(name).queue.jobs)
        cohort = [cmd.Claimer(f"w{i}", rng.randrange(1, 4), None, stream) for i in range(2)]
        reply: cmd.ClaimResult = world.run(cmd.ClaimJobs(name, tuple(cohort)))
        for claimer, jobs in zip(cohort, reply.jobs, strict=True):
            for found in jobs:
                assert found.seq not in promises.acked, f"{name}: {found.seq} after its ack"
                self.held[name][found.seq] = claimer.node
                self.ledger.deliveries += 1

    def _some_held(self, name: str) -> tuple[str, list[int]]:
        held = self.held[name]
        node = self.rng.choice(("w0", "w1"))
        seqs = [seq for seq, holder in held.items() if holder == node]
        self.rng.shuffle(seqs)
        return node, seqs[: self.rng.randrange(1, 5)]

    def ack(self, world: World, name: str) -> None:
        """Ack some that were claimed."""
        node, seqs = self._some_held(name)
        promises = self.ledger.topics[name]
        promises.gone.update(seqs)
        _, skipped = world.ack(*seqs, node=node, topic=name)
        done = set(seqs) - set(skipped)
        promises.acked |= done
        # What was skipped may still be there, and what is still there was not removed.
        topic = world.state.topics[name]
        promises.gone -= {seq for seq in skipped if topic.holds(seq)}
        for seq in seqs:
            self.held[name].pop(seq)

    def nack(self, world: World, name: str) -> None:
        """Give some back."""
        node, seqs = self._some_held(name)
        world.nack(*seqs, node=node, topic=name, delay_ms=self.rng.choice((0, 100)))

    def extend(self, world: World, name: str) -> None:
        """Hold some longer."""
        node, seqs = self._some_held(name)
        world.extend(*seqs, node=node, topic=name, lease_ms=self.rng.choice((100, 2000)))

    def release(self, world: World, name: str) -> None:
        """A work stream ends."""
        world.release(7, name)

    def delete(self, world: World, name: str) -> None:
        """Delete a prefix or a tag."""
        rng, promises = self.rng, self.ledger.topics[name]
        head = world.state.topics[name].head
        before = rng.randrange(head + 2) if rng.random() < 0.5 else None
        match = f"t{rng.randrange(3)}" if before is None else None
        promises.gone.update(
            seq
            for batch in promises.shown
            for seq, data in zip(batch.seqs, batch.data, strict=True)
            if (seq < before if before is not None else match == f"t{data % 3}")
        )
        world.delete(name, before=before, match=match)

    def configure(self, world: World, name: str) -> None:
        """Change a config, retention left alone."""
        world.put(name, **{**TOPICS[name], "lease_ms": self.rng.choice((200, 400, 800))})

    def drop(self, world: World, name: str) -> None:
        """Create, fill and delete a topic of its own."""
        world.put("passing", durability="fsync")
        world.fill(3, "passing")
        world.claim(2, topic="passing")
        assert world.drop("passing")

    def restart(self, world: World) -> None:
        """An orderly end and a new start."""
        world.restart()
        promises = self.ledger.topics["ephemeral"]
        promises.shown, promises.tried = [], []
        self.held = {name: {} for name in TOPICS}

    def run(self, world: World, turns: int) -> None:
        """A whole day."""
        if not self.ledger.topics:
            self.begin(world)
        for _ in range(turns):
            try:
                self.turn(world)
            except LogqueueError as refusal:  # pragma: no cover - shows a broken workload
                raise AssertionError(f"the workload was refused: {refusal!r}") from refusal
