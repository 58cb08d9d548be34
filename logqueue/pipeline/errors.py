"""Errors of the data pipeline, with messages for users.

Owns: `PipelineError`, and the one line that is worth showing of a failure inside Spark. Must not
know: any job, the command line. Nothing here imports pyspark.
"""

from __future__ import annotations

import re

LINE_MAX = 600
"""Characters of a line that people are shown."""

PYTHON_TRACE = "Traceback (most recent call last):"

# What a Scala stack says before the reason: classes, places in code, and what it was caused by.
_SCALA_NOISE = re.compile(
    r"^\s*(at |\.\.\. \d+ more|Caused by: |JVM stacktrace:|Driver stacktrace:)"
)
_EXCEPTION_PREFIX = re.compile(r"^(?:[a-z][\w]*\.)+(?P<kind>[A-Z]\w*)(?:: )")
_OURS = re.compile(
    r"^(?:logqueue\.pipeline\.errors\.)?PipelineError: (?P<text>.*)"
    r"|^logqueue\.errors\.[A-Z]\w*: (?P<refusal>.*)"
)


class PipelineError(Exception):
    """A job of the pipeline cannot do what it was asked for.

    The message says what was wrong and what to do; it is shown to people as it is.
    """

    def __init__(self, message: str) -> None:
        assert message, "a refusal must say what was wrong"
        super().__init__(message)
        self.message = message


def message_of(error: BaseException) -> str:
    """The one line of a failure that people need.

    A failure inside a Python worker comes as a Scala stack with a Python traceback somewhere in it;
    of that, the last line of the last traceback is given. A refusal of our own, wherever it was
    raised, is given as its message.
    """
    text = str(error)
    if isinstance(error, PipelineError):
        return error.message
    ours = [match for match in map(_OURS.search, text.splitlines()) if match]
    if ours:
        return _cut((ours[-1]["text"] or ours[-1]["refusal"]).strip())
    if PYTHON_TRACE in text:
        return _cut(_last_of_traceback(text))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    kept = [line for line in lines if not _SCALA_NOISE.match(line)]
    if not kept:
        return type(error).__name__
    return _cut(_EXCEPTION_PREFIX.sub(r"\g<kind>: ", kept[0]))


def as_pipeline_error(error: BaseException) -> PipelineError:
    """A failure as a refusal with one line; a refusal of our own stays as it is."""
    return error if isinstance(error, PipelineError) else PipelineError(message_of(error))


def _last_of_traceback(text: str) -> str:
    """The line that ends the last Python traceback in a text: `Kind: what was wrong`."""
    last = "Traceback without an end"
    for line in text[text.rindex(PYTHON_TRACE) :].splitlines()[1:]:
        if line.startswith((" ", "\t")):
            if _SCALA_NOISE.match(line):
                break
            continue
        if not line.strip():
            break
        last = line
        break
    return _EXCEPTION_PREFIX.sub(r"\g<kind>: ", last.strip())


def _cut(line: str) -> str:
    return line if len(line) <= LINE_MAX else f"{line[: LINE_MAX - 1]}…"
