"""What the server remembers of SQS clients beside its state, until a restart.

Must not know: actions.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

FIRST_RECEIVES_MAX: Final = 50_000
MOVES_MAX: Final = 100


class FirstReceives:
    """First receives, as far as clients have asked for them."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int], int] = OrderedDict()

    def of(self, instance: int, seq: int, deliveries: int, now: int) -> int:
        """When a message that is received now was first received, ms since the epoch."""
        place = (instance, seq)
        if deliveries > 1 and place in self._known:
            return self._known[place]
        self._known[place] = now
        if len(self._known) > FIRST_RECEIVES_MAX:
            self._known.popitem(last=False)
        return now


class Observations:
    """All of them.

    Attributes:
        first_receives: When messages were first received.
        purging: Instances of queues that are being purged.
        moves: Destinations of the latest message move tasks, None where there is none.
    """

    def __init__(self) -> None:
        self.first_receives = FirstReceives()
        self.purging: set[int] = set()
        self.moves: dict[str, str | None] = {}

    def note_move(self, task: str, target: str | None) -> None:
        """A message move task was started."""
        self.moves[task] = target
        if len(self.moves) > MOVES_MAX:
            del self.moves[next(iter(self.moves))]
