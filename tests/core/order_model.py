"""The order in which jobs are handed out by priority, age and group, as plainly as it can be said.

Owns: which jobs a claim takes, or may take. Must not know: indexes, rings, events.
"""

from __future__ import annotations

from collections import Counter

from logqueue.model.config import TopicOptions
from tests.core.lifecycle_model import LifecycleModel, ModelJob


class OrderModel(LifecycleModel):
    """A queue whose jobs have priorities and groups. No job of it is ever exhausted.

    Attributes:
        refilled_at: When all that a group has used of its rate is refilled, ms since the epoch.
    """

    def __init__(self, config: TopicOptions) -> None:
        super().__init__(config)
        self.refilled_at: dict[str, float] = {}

    def rate_allows(self, group: str, now: int) -> int:
        """How many jobs the rate of a group lets go."""
        rate = self.config.groups.rate_per_group if self.config.groups is not None else None
        if rate is None:
            return len(self.jobs)
        cost = 1000 / rate.per_s
        used = max(self.refilled_at.get(group, 0) - now, 0)
        return int((rate.burst_jobs * cost - used) / cost + 1e-6)

    def restart(self) -> None:
        """What groups have used of their rates is forgotten."""
        super().restart()
        self.refilled_at.clear()

    def rank(self, job: ModelJob, now: int) -> tuple[int, int]:
        """What sorts as a claim takes jobs: effective priority down, then seq."""
        step = self.config.priority_ageing_ms
        gained = (now - job.ts) // step if step else 0
        return -min(job.wish.priority + gained, 9), job.seq

    def groups(self) -> dict[str | None, list[ModelJob]]:
        """The live jobs of each group, ascending."""
        found: dict[str | None, list[ModelJob]] = {}
        for _, job in sorted(self.jobs.items()):
            found.setdefault(job.wish.group, []).append(job)
        return found

    def allowed(self, now: int) -> dict[str | None, list[ModelJob]]:
        """What each group may give to one claim, the first job first."""
        options = self.config.groups
        every = sorted(self.jobs.values(), key=lambda job: self.rank(job, now))
        ready = [job for job in every if job.state(now) == "ready"]
        if options is None:
            return {None: ready}
        found: dict[str | None, list[ModelJob]] = {}
        for group, members in self.groups().items():
            mine = [job for job in ready if job.wish.group == group]
            in_flight = sum(job.lease is not None for job in members)
            if group is None:
                found[group] = mine
            elif options.mode == "fifo":
                found[group] = [] if in_flight or members[0] not in mine else members[:1]
            elif options.max_in_flight_per_group:
                found[group] = mine[: max(options.max_in_flight_per_group - in_flight, 0)]
            else:
                found[group] = mine
            if group is not None:
                found[group] = found[group][: self.rate_allows(group, now)]
        return {group: jobs for group, jobs in found.items() if jobs}

    def wanted(self, wanted: int) -> int:
        """How many jobs a claim may take, by the limits of the whole queue."""
        if self.config.paused:
            return 0
        if self.config.max_in_flight:
            leased = sum(job.lease is not None for job in self.jobs.values())
            wanted = min(wanted, max(self.config.max_in_flight - leased, 0))
        return wanted

    def require_right(self, now: int, wanted: int, chosen: list[int]) -> None:
        """Whether a claim was right to take these jobs, in this order."""
        wanted = self.wanted(wanted)
        allowed = self.allowed(now)
        jobs = [job for group in allowed.values() for job in group]
        options = self.config.groups
        if options is None or options.mode == "fifo":
            jobs.sort(key=lambda job: self.rank(job, now))
            assert chosen == [job.seq for job in jobs[:wanted]]
            return
        assert len(chosen) == min(wanted, len(jobs))
        assert len(set(chosen)) == len(chosen)
        taken: Counter[str | None] = Counter()
        for seq in chosen:
            group = self.jobs[seq].wish.group
            assert allowed[group][taken[group]].seq == seq, "in order within its group"
            taken[group] += 1
        weights = options.weights or {}
        for group, jobs in allowed.items():
            if taken[group] == len(jobs):
                continue
            # It could have given more: no other group had more turns than it, but for those that
            # the first and the last of them had begun.
            turns = taken[group] // weights.get(group or "", 1)
            for other, count in taken.items():
                assert -(-count // weights.get(other or "", 1)) <= turns + 2, (group, other)

    def lease(self, now: int, seqs: list[int], lease: tuple[str, int, int]) -> None:
        """Jobs are handed out."""
        rate = self.config.groups.rate_per_group if self.config.groups is not None else None
        for seq in seqs:
            job = self.jobs[seq]
            if rate is not None and job.wish.group is not None:
                since = max(self.refilled_at.get(job.wish.group, 0), now)
                self.refilled_at[job.wish.group] = since + 1000 / rate.per_s
            job.lease, job.offered = lease, True
            job.deliveries += 1
