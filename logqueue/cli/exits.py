"""How a command ends: exit statuses, and the errors that become one line and a status.

Owns: both. Must not know: any command, how things are printed.
"""

from __future__ import annotations

from logqueue.errors import (
    Forbidden,
    LogqueueError,
    MethodNotAllowed,
    NotFound,
    RouterNotFound,
    ScheduleNotFound,
    TopicNotFound,
    quoted,
)

OK = 0
FAILURE = 1
USAGE = 2
NOTHING = 3
DIFFERS = 4
INTERRUPTED = 130


class CommandError(Exception):
    """The command cannot do what it was asked for; the message says why and what to do."""

    status = FAILURE


class UsageError(CommandError):
    """Invalid usage."""

    status = USAGE


class NothingThere(CommandError):
    """What it was asked for does not exist, or is empty."""

    status = NOTHING


def in_short(error: LogqueueError, url: str) -> str:
    """What is wrong, without what to do about it.

    Args:
        url: Where the server was looked for; of several, the message names each.
    """
    if error.code != "unreachable" or "," in url:
        return error.message
    # The cause follows the URL: refused, an unknown host name, no reply in time.
    cause = error.message.partition(f"{url}: ")[2] or error.message
    return f"no server answers at {url} ({cause})"


def explained(error: LogqueueError, url: str) -> CommandError:
    """A refusal, or a failure of the connection, as the end of a command.

    Args:
        url: Where the server was looked for.
    """
    kind: type[CommandError] = CommandError
    text = error.message
    match error:
        case TopicNotFound():
            named = (error.detail or {}).get("topic", "")
            text = f"there is no topic {quoted(named)}; `logqueue topics` lists them"
            kind = NothingThere
        case RouterNotFound():
            named = (error.detail or {}).get("router", "")
            text = f"there is no router {quoted(named)}; `logqueue routers` lists them"
            kind = NothingThere
        case ScheduleNotFound():
            named = (error.detail or {}).get("schedule", "")
            text = f"there is no schedule {quoted(named)}; `logqueue schedules list` lists them"
            kind = NothingThere
        case NotFound() if "no such route" not in text:
            kind = NothingThere
        case NotFound() | MethodNotAllowed():
            text = f"the server at {url} is too old for this command, or not ours: {text}"
        case Forbidden():
            text = f"{text}; use a key that may do this (--token or LOGQUEUE_TOKEN)"
        case LogqueueError(code="unreachable"):
            text = (
                f"{in_short(error, url)}: start one with `logqueue serve`, or say where it is with "
                "--url or LOGQUEUE_URL"
            )
    notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
    return kind(text + notes)
