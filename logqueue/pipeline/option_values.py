"""Values of options, checked: what sources and sinks read alike.

Owns: names in any case, choices, whole numbers, the server's URL and the API key, and the message
for each mistake. Must not know: which options there are, pyspark, how anything is read or written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Mapping
from typing import Final

from logqueue.errors import quoted
from logqueue.pipeline.errors import PipelineError

_TOPIC: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}")


def by_name(
    options: Mapping[str, str],
    names: Iterable[str],
    aliases: Mapping[str, str],
    known_to: str,
    skipped: Container[str] = (),
) -> dict[str, str]:
    """The options under their own spelling.

    Args:
        names: Those that are known.
        aliases: Other spellings in lower case, by the name they mean.
        known_to: Who knows them, for the message.
        skipped: Names in lower case that are left out.

    Raises:
        PipelineError: One is unknown, or given twice with different values.
    """
    names = tuple(names)
    spelled = {name.lower(): name for name in names}
    spelled.update({alias: name for alias, name in aliases.items() if name in names})
    given: dict[str, str] = {}
    for key, value in options.items():
        if key.lower() in skipped:
            continue
        name = spelled.get(key.lower())
        if name is None:
            raise PipelineError(
                f"option {key} is unknown to {known_to}; the options are {', '.join(names)}"
            )
        if given.get(name, value) != value:
            raise PipelineError(
                f"option {name} is given twice, as {quoted(given[name])} and {quoted(value)}"
            )
        given[name] = value
    return given


def one_of(given: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    """One of these words, in any case; the first when it is not given.

    Raises:
        PipelineError: It is another word.
    """
    value = given.get(name, values[0]).strip().lower()
    if value not in values:
        either = f"{', '.join(values[:-1])} or {values[-1]}"
        raise PipelineError(f"option {name} is {quoted(given[name])}: write {either}")
    return value


def whole(given: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    """A whole number within bounds.

    Raises:
        PipelineError: It is something else.
    """
    text = given.get(name, str(default)).strip()
    is_number = text.isascii() and text.isdigit() and len(text) <= 19
    if not is_number or not least <= int(text) <= most:
        raise PipelineError(
            f"option {name} is {quoted(text)}: write a number from {least} to {most}"
        )
    return int(text)


def server_url(given: Mapping[str, str]) -> str:
    """The option `url`; of several servers of one log, their URLs with commas between them.

    Raises:
        PipelineError: It is missing, or not a URL of a server.
    """
    urls = [text.strip().rstrip("/") for text in given.get("url", "").split(",")]
    for url in urls:
        if not url.startswith(("http://", "https://")):
            what = f"is {quoted(url)}" if any(urls) else "is missing"
            raise PipelineError(f"option url {what}: write the server's URL, http://host:port")
    return ",".join(urls)


def require_topic(name: str, option: str, hint: str = "") -> None:
    """Check the name of a topic.

    Raises:
        PipelineError: No topic can have it.
    """
    if _TOPIC.fullmatch(name) is None:
        raise PipelineError(f"option {option}: {quoted(name)} is not a valid topic name{hint}")


def require_one_key(given: Mapping[str, str]) -> None:
    """Check that the API key is given in one way.

    Raises:
        PipelineError: It is given in two.
    """
    if "token" in given and "tokenFile" in given:
        raise PipelineError("options token and tokenFile contradict each other: give one of them")


def api_key(token: str | None, token_file: str | None, hint: str = "") -> str | None:
    """The API key: of the file, else of the option, else LOGQUEUE_TOKEN; None for none.

    Args:
        hint: Added to the message when the file cannot be read.

    Raises:
        PipelineError: The file cannot be read, or is empty.
    """
    if token_file is None:
        return token or os.environ.get("LOGQUEUE_TOKEN") or None
    try:
        with open(token_file, encoding="utf-8") as file:
            found = file.read().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise PipelineError(
            f"option tokenFile: {token_file} cannot be read: {reason}{hint}"
        ) from error
    if not found:
        raise PipelineError(f"option tokenFile: {token_file} is empty; it must hold one key")
    return found
