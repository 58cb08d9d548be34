"""What becomes of a job once its handler has returned or raised.

Owns: the outcomes, the exceptions by which a handler asks for one, the policies, and the decision
between them, which is pure. Must not know: how outcomes reach the server.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Literal, NamedTuple

from logqueue.client.appending import new_key
from logqueue.client.settling import FollowUp
from logqueue.shapes import TopicConfig
from logqueue.worker.retry import Retry

ERROR_BYTES_MAX = 4096
"""What the server keeps of an error text."""


class AckPolicy(Enum):
    """What the runtime does about a job on its own.

    `RetryLater`, `Snooze` and `Reject` raised by a handler win over every policy but `ACK_FIRST`,
    under which nothing is left to settle.
    """

    ACK_FIRST = "ack_first"
    """Ack before the handler runs: at most once. A job whose ack does not count is not run."""
    ACK = "ack"
    """Ack whatever happens; an error is only logged."""
    REJECT_ON_ERROR = "reject_on_error"
    """Ack on return; an error fails the job permanently."""
    NACK_ON_ERROR = "nack_on_error"
    """Ack on return; an error gives the job back by its retry rule. The default."""
    MANUAL = "manual"
    """The handler settles. A return without settling keeps the lease until the job is settled; an
    error before settling counts as under `NACK_ON_ERROR`, since nothing else would settle it."""


class RetryLater(Exception):
    """Raise it to have the job again after `delay` seconds; counts as an attempt.

    Attributes:
        delay: Seconds; None leaves it to the retry rule of the task.
        reason: Kept with the job as its last error.
    """

    def __init__(self, delay: float | None = None, reason: str = "") -> None:
        super().__init__(reason or "the handler asked for another attempt later")
        self.delay = delay
        self.reason = reason


class Snooze(Exception):
    """Raise it to have the job again after `delay` seconds as if it had never been handed out."""

    def __init__(self, delay: float) -> None:
        super().__init__(f"snoozed for {delay} s")
        self.delay = delay


class Reject(Exception):
    """Raise it to fail the job permanently: dead-lettered, or dropped where nothing is set."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason or "rejected by the handler")
        self.reason = reason


class JobTimeout(Exception):
    """The handler took longer than its timeout."""


class BadPayload(Exception):
    """The job's data is not what its handler takes, and no retry will change that."""


class BadResult(Exception):
    """What a task returned cannot be kept as its result, and no retry will change that."""


class UnknownTask(Exception):
    """No task of this name is registered; another worker, or a later version, may know it."""


Verb = Literal["ack", "nack", "reject"]


@dataclass(frozen=True, slots=True, eq=False)
class FollowUps:
    """What follows from one job.

    Attributes:
        writes: What is written.
        key: By which a repeat of the ack is recognized.
    """

    writes: Sequence[FollowUp]
    key: str = field(default_factory=new_key)


@dataclass(frozen=True, slots=True)
class Outcome:
    """One way to settle a job.

    Attributes:
        delay_ms: For a nack: delay before it can be claimed again.
        error: For a nack or reject: the text kept with the job.
        count: For a nack: whether this delivery counts.
        then: For an ack: what is written in the same transaction, if anything.
    """

    verb: Verb
    delay_ms: int = 0
    error: str | None = None
    count: bool = True
    then: FollowUps | None = None


ACK = Outcome("ack")


def error_text(error: BaseException) -> str:
    """An exception as the text that is kept with a job, within its bound."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    clipped = text.encode("utf-8", "replace")[:ERROR_BYTES_MAX]
    return clipped.decode("utf-8", "ignore")


def decide(
    policy: AckPolicy, retry: Retry, error: BaseException | None, attempt: int, chance: Random
) -> Outcome | None:
    """How to settle a job whose handler has ended.

    Args:
        policy: The handler's.
        retry: The handler's.
        error: What it raised; None when it returned.
        attempt: Which delivery this was, from 1.
        chance: For the jitter of the retry rule.

    Returns:
        The outcome; None when there is nothing to do.
    """
    if policy is AckPolicy.ACK_FIRST:
        return None
    if error is None:
        return None if policy is AckPolicy.MANUAL else ACK
    if isinstance(error, Snooze):
        return Outcome("nack", _ms(error.delay), count=False)
    if isinstance(error, Reject):
        return Outcome("reject", error=error.reason or None)
    if isinstance(error, BadPayload | BadResult):
        return Outcome("reject", error=error_text(error))
    if isinstance(error, RetryLater):
        return _retry_later(retry, error, attempt, chance)
    if policy is AckPolicy.ACK:
        return ACK
    if policy is AckPolicy.REJECT_ON_ERROR:
        return Outcome("reject", error=error_text(error))
    return _by_rule(retry, error, attempt, chance)


class JobEnd(NamedTuple):
    """What becomes of a job that failed for the last time.

    Attributes:
        is_loss: Nothing of it is kept.
    """

    text: str
    is_loss: bool


def fate(deliveries: int, config: TopicConfig, is_rejected: bool) -> JobEnd | None:
    """What the server does with a failed job; None when it is delivered again.

    Args:
        deliveries: How often it was handed out.
        config: Of its queue.
        is_rejected: It was rejected; otherwise given back.
    """
    target = config.dead_letter
    if is_rejected:
        rule = "dead_letter" if target else "hold" if config.on_exhausted == "hold" else "drop"
    elif not config.max_deliveries or deliveries < config.max_deliveries:
        return None
    else:
        rule = config.on_exhausted or ("dead_letter" if target else "")
    match rule:
        case "dead_letter":
            return JobEnd(f"moving to dead-letter topic {target}", False)
        case "hold":
            return JobEnd("held until an operator releases it", False)
        case "drop":
            why = "" if target else " because the queue has no dead-letter topic"
            return JobEnd(f"dropped permanently{why}", True)
    return None


def _retry_later(retry: Retry, error: RetryLater, attempt: int, chance: Random) -> Outcome:
    text = error.reason or None
    if error.delay is not None:
        return Outcome("nack", _ms(error.delay), text)
    delay = retry.delay(attempt, error, chance)
    return Outcome("reject", error=text) if delay is None else Outcome("nack", _ms(delay), text)


def _by_rule(retry: Retry, error: BaseException, attempt: int, chance: Random) -> Outcome:
    delay = retry.delay(attempt, error, chance)
    if delay is None:
        return Outcome("reject", error=error_text(error))
    return Outcome("nack", _ms(delay), error_text(error))


def _ms(seconds: float) -> int:
    return max(round(seconds * 1000), 0)
