"""What an explanation is about: a stretch of time in question, and the value that accounts for it.

Owns: these shapes. Must not know: how they are found, how they are put in words.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class EventCounts:
    """What was counted in a stretch of time, or in all of them."""

    n: int = 0
    bad: int = 0
    ms: int = 0

    def without(self, other: EventCounts) -> EventCounts:
        """The rest."""
        return EventCounts(self.n - other.n, self.bad - other.bad, self.ms - other.ms)

    @property
    def rate(self) -> float:
        """The share that is bad."""
        return self.bad / self.n if self.n else 0.0

    @property
    def mean(self) -> float:
        """The mean duration, ms."""
        return self.ms / self.n if self.n else 0.0


@dataclass(frozen=True)
class Question:
    """A stretch of time of a topic that is to be explained.

    Attributes:
        place: Of the topic among those that are looked at.
        topic: Its name.
        symptom: `failures`, `runs`, `waits` or `backlog`.
        metric: What is counted to explain it: `failures`, `runs`, `waits` or `arrivals`.
        since, until: The stretch, ms.
        inside, outside: What was counted in it, and in the rest of the range.
        usual: Of arrivals, how many there are in such a stretch usually.
        is_whole: The stretch is the whole range; values are compared with each other.
        symptom_value, symptom_usual: How bad it was, and usually is: failures or slow runs, the
            mean wait in ms, or by how many jobs the backlog grew.
    """

    place: int
    topic: str
    symptom: str
    metric: str
    since: int
    until: int
    inside: EventCounts
    outside: EventCounts
    usual: float = 0.0
    is_whole: bool = False
    symptom_value: float = 0.0
    symptom_usual: float = 0.0


@dataclass(frozen=True)
class Contribution:
    """An answer.

    Attributes:
        question: To what.
        cause: `worker`, `tag`, `key`, `error`, `outcome`; or `arrivals`, `missing`
            (workers) where it is not one of these.
        value: Which one; "" for none.
        share: Of the excess.
        traffic: Its share of what was counted in the stretch.
        inside: What was counted of it in the stretch.
        others: What was counted of all others in the stretch.
        error: The error that most of its failures have; "" for none.
        weight: How important, for the order.
    """

    question: Question
    cause: str
    value: str = ""
    share: float = 0.0
    traffic: float = 0.0
    inside: EventCounts = field(default_factory=EventCounts)
    others: EventCounts = field(default_factory=EventCounts)
    error: str = ""
    weight: float = 0.0
