"""What the server remembers of SQS clients beside its state, until a restart.

Must not know: actions.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from logqueue.core.results import ClaimedJob

FIRST_RECEIVES_MAX: Final = 50_000
MOVES_MAX: Final = 100
ATTEMPTS_MAX: Final = 1000
ATTEMPT_MS: Final = 300_000


class FirstReceives:
    """First receives, as far as clients have asked for them."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int], int] = OrderedDict()

    def of(self, instance: int, seq: int, now: int) -> int:
        """When a message that is received now was first received, ms since the epoch."""
        place = (instance, seq)
        if place in self._known:
            return self._known[place]
        self._known[place] = now
        if len(self._known) > FIRST_RECEIVES_MAX:
            self._known.popitem(last=False)
        return now


class ReceiveAttempts:
    """Receives of FIFO queues that may be asked for again, by the id that clients gave them."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, str], tuple[int, list[ClaimedJob]]] = OrderedDict()

    def note(self, instance: int, attempt: str, now: int, jobs: list[ClaimedJob]) -> None:
        """These were received; their payloads are not kept."""
        place = (instance, attempt)
        self._known.pop(place, None)
        self._known[place] = now, [job._replace(data=b"", meta=b"") for job in jobs]
        if len(self._known) > ATTEMPTS_MAX:
            self._known.popitem(last=False)

    def find(self, instance: int, attempt: str, now: int) -> list[ClaimedJob]:
        """What was received under an id, [] when there is no such receive of late."""
        at, jobs = self._known.get((instance, attempt), (0, []))
        return jobs if now - at <= ATTEMPT_MS else []


class Observations:
    """All of them.

    Attributes:
        first_receives: When messages were first received.
        attempts: Receives that may be asked for again.
        purging: Instances of queues that are being purged.
        moves: Destinations of the latest message move tasks, None where there is none.
    """

    def __init__(self) -> None:
        self.first_receives = FirstReceives()
        self.attempts = ReceiveAttempts()
        self.purging: set[int] = set()
        self.moves: dict[str, str | None] = {}

    def note_move(self, task: str, target: str | None) -> None:
        """A message move task was started."""
        self.moves[task] = target
        if len(self.moves) > MOVES_MAX:
            del self.moves[next(iter(self.moves))]
