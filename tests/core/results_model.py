"""What a queue keeps of ended jobs, as plainly as it can be said.

Owns: which ends are kept, with what, and which go. Must not know: events, indexes, anything of the
core but its config.
"""

from __future__ import annotations

from typing import NamedTuple

from logqueue.model.config import ResultOptions, TopicOptions
from tests.core.lifecycle_model import LifecycleModel, ModelJob

ENTRY_BYTES = 256


class Ended(NamedTuple):
    """What became of a job."""

    outcome: str
    at: int
    node: str = ""
    reason: str = ""
    result: bytes = b""
    error: str | None = None

    @property
    def size(self) -> int:
        """Bytes that it counts."""
        return ENTRY_BYTES + len(self.result) + len(self.error or "")


class ResultsModel(LifecycleModel):
    """A queue that may keep what became of its jobs."""

    def __init__(self, config: TopicOptions) -> None:
        super().__init__(config)
        self.now = 0
        self.node = ""
        self.results: dict[int, bytes] = {}
        self.rejected_with: str | None = None
        self.ended: dict[int, Ended] = {}

    def tick(self, now: int) -> None:
        """Time acts; what is too old is forgotten."""
        self.now = now
        super().tick(now)
        self.forget()

    def end(self, seq: int, outcome: str) -> None:
        """A job is finished."""
        job = self.jobs[seq]
        worn = outcome == "dropped" and self.is_worn(job)
        error = job.error if outcome == "rejected" or worn else None
        self.keep(seq, outcome, "", error)
        super().end(seq, outcome)

    def is_worn(self, job: ModelJob) -> bool:
        """Whether a job that is dropped has had all its deliveries: no cap takes it."""
        return self.claiming

    claiming = False

    def claim(self, now: int, wanted: int, lease: tuple[str, int, int]) -> list[int]:
        """What ends here has had all its deliveries."""
        self.claiming = True
        try:
            return super().claim(now, wanted, lease)
        finally:
            self.claiming = False

    def die(self, job: ModelJob, reason: str) -> None:
        """A job becomes a dead letter."""
        self.keep(job.seq, "dead_lettered", reason, job.error)
        super().die(job, reason)

    def keep(self, seq: int, outcome: str, reason: str, error: str | None) -> None:
        """Note how a job ends."""
        if self.config.results is None:
            return
        if self.rejected_with is not None:
            error = self.rejected_with
        result = self.results.get(seq, b"") if outcome == "acked" else b""
        node = self.node if outcome == "acked" or reason == "rejected" else ""
        node = self.node if outcome == "rejected" else node
        self.ended[seq] = Ended(outcome, self.now, node, reason, result, error)
        self.forget()

    def forget(self) -> None:
        """The oldest go, by time and by bytes."""
        options = self.config.results
        if options is None:
            self.ended.clear()
            return
        for seq, job in [*self.ended.items()]:
            if self.now - job.at > options.keep_ms:
                del self.ended[seq]
        while sum(job.size for job in self.ended.values()) > options.max_bytes:
            del self.ended[min(self.ended, key=lambda seq: (self.ended[seq].at, seq))]

    def configure(self, options: ResultOptions | None) -> None:
        """The bounds are about to change; those of until now act."""
        self.forget()
        if options is None:
            self.ended.clear()
