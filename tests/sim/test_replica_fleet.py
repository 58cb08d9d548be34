"""Up to three servers of one log in sync mode, on disks that crash, are cut off or burn, over a
store that fails in all ways it may: nothing that was promised is ever lost, by no writer.

A history is a seeded run of small steps of whole servers: what a client asks, a round of the disk,
a step of either thread of the replica, a look of the watch, a death, a start. Deaths also come
between any two calls of the store.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

from logqueue.core import commands as cmd
from logqueue.errors import LogqueueError
from logqueue.server.service import Phase
from logqueue.server.storage.replica_start import ReplicaRefused, ReplicaTaken
from logqueue.testing.simulated_store import (
    NO_FAULTS,
    SOME_FAULTS,
    SimulatedObjects,
    StoreFaults,
)
from tests.effort import scaled
from tests.replica.fleet import Asked, FleetTime, Machine
from wal.testing.simfs import SimCrash

STEPS = 200
FEW_FAULTS = StoreFaults(
    lost_before=0.01, lost_after=0.02, repeated=0.02, late=0.01, latency_s=(0.001, 0.05), page=3
)
NODE = "w"


class History:
    """One run.

    Attributes:
        promised: What clients were told is stored, by value.
        acked: Seqs of jobs that clients were told are complete.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.time = FleetTime()
        shared = SimulatedObjects()
        faults = self.rng.choice((NO_FAULTS, FEW_FAULTS, SOME_FAULTS))
        names = "abc"[: self.rng.choice((1, 2, 3))]
        self.machines = [
            Machine(name, shared, self.time, faults=faults, seed=seed) for name in names
        ]
        self.last = Machine("last", shared, self.time, seed=seed)
        self.asked: list[tuple[int, Asked]] = []
        self.acks: list[tuple[list[int], Asked]] = []
        self.claims: list[tuple[Machine, Asked]] = []
        self.promised: dict[int, int] = {}
        self.acked: set[int] = set()
        self.next = 0
        self.seen: Counter[str] = Counter()

    async def run(self) -> None:
        for _ in range(STEPS):
            machine = self.rng.choice(self.machines)
            try:
                await self.step(machine)
            except SimCrash:
                self.seen["crash"] += 1
                self.die(machine)
            self.collect()
        for machine in self.machines:
            machine.kill()
        self.last.start()
        self.check(self.last)

    async def step(self, machine: Machine) -> None:
        rng = self.rng
        runtime = machine.runtime
        if runtime is None:
            if rng.random() < 0.6:
                await self.start(machine)
            return
        if runtime.service.phase is Phase.FENCED:
            self.seen["fenced"] += 1
            machine.kill()
            return
        choice = rng.random()
        if choice < 0.4:
            self.ask(machine)
        elif choice < 0.5:
            await machine.write_disk()
        elif choice < 0.7:
            await machine.ship()
        elif choice < 0.85:
            await machine.rest()
        elif choice < 0.9:
            machine.replication.tidy_step()
        elif choice < 0.94:
            assert runtime.replica_watch is not None
            runtime.replica_watch.tick()
            for _ in runtime.engine.tidy():
                pass
            self.time.pass_s(rng.choice((0.1, 1, 5, 15)))
        elif choice < 0.965 or machine.store.is_cut_off:
            machine.store.is_cut_off = not machine.store.is_cut_off
        elif choice < 0.985:
            machine.crash_in = rng.randrange(12)
        else:
            self.die(machine)

    def ask(self, machine: Machine) -> None:
        try:
            if self.rng.random() < 0.5:
                self.next += 1
                self.asked.append((self.next, machine.append(self.next, topic="q")))
            elif self.rng.random() < 0.5:
                claimer = cmd.Claimer(NODE, 3, 3_600_000)
                self.claims.append((machine, machine.ask(cmd.ClaimJobs("q", (claimer,)))))
            else:
                for owner, claim in self.claims:
                    if owner is machine and claim.is_granted() and claim.answer.jobs[0]:
                        seqs = [job.seq for job in claim.answer.jobs[0]]
                        self.acks.append((seqs, machine.ask(cmd.AckJobs("q", NODE, seqs, None))))
                        self.claims.remove((owner, claim))
                        break
        except LogqueueError:
            self.seen["refused"] += 1

    def die(self, machine: Machine) -> None:
        self.claims = [(owner, claim) for owner, claim in self.claims if owner is not machine]
        end = self.rng.choice((machine.kill, machine.cut_power, machine.burn))
        machine.store.is_cut_off = False
        end()

    async def start(self, machine: Machine) -> None:
        if self.rng.random() < 0.15:
            machine.crash_in = self.rng.randrange(25)
        for discard in (False, True):
            try:
                machine.start(discard_local=discard)
            except ReplicaTaken:
                self.seen["taken"] += 1
                machine.kill()
                return
            except ReplicaRefused as refused:
                machine.kill()
                if "--discard-local" in str(refused):
                    self.seen["parted"] += 1
                    continue
                self.seen["away"] += 1
                return
            break
        machine.crash_in = None
        self.seen["start"] += 1
        self.check(machine)
        await machine.put("q", type="queue")

    def collect(self) -> None:
        for value, asked in self.asked:
            if asked.is_granted():
                self.promised[value] = asked.answer.first_seq
        for seqs, asked in self.acks:
            if asked.is_granted():
                self.acked.update(set(seqs) - set(asked.answer.skipped))
        self.asked = [pair for pair in self.asked if not pair[1].is_granted()]
        self.acks = [pair for pair in self.acks if not pair[1].is_granted()]

    def check(self, machine: Machine) -> None:
        """A server that has started has all that clients were promised."""
        records: dict[int, Any] = {}
        if "q" in machine.state.topics:
            queue = machine.state.topics["q"]
            for batch in queue.batches:
                for seq, _, texts in batch.records():
                    records[seq] = int(texts[0])
        else:
            assert not self.promised
        for value, seq in self.promised.items():
            if seq not in records:
                assert any(seq in seqs for seqs, _ in self.acks) or seq in self.acked, (
                    f"record {seq} with {value} is lost"
                )
            else:
                assert records[seq] == value, f"{value} was promised as {seq}"
        back = self.acked & records.keys()
        assert not back, f"jobs {back} were acked, and are back"


def run(seed: int) -> History:
    history = History(seed)
    asyncio.run(history.run())
    return history


def test_nothing_promised_is_lost() -> None:
    seen: Counter[str] = Counter()
    promised = acked = 0
    for seed in range(scaled(12, thorough=1500)):
        history = run(seed)
        seen += history.seen
        promised += len(history.promised)
        acked += len(history.acked)
    assert promised
    assert acked
    assert seen["start"] > seen["parted"]
