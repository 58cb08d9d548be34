"""Reads server-sent events out of bytes, however they are cut.

Owns: the format: fields, comments, line ends. Must not know: what events mean, where bytes come
from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE_END = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event.

    Attributes:
        event: Its name; "message" when it has none.
        data: Its data lines, joined by line feeds.
        id: The last id of the stream so far; "" when there was none.
    """

    event: str
    data: str
    id: str


class SseParser:
    """Turns the bytes of one stream into events. An unfinished event at the end is dropped.

    Attributes:
        last_id: The id that the last whole event carried, or inherited.
        retry_ms: How long the server asks to wait before reconnecting; None when it did not say.
    """

    def __init__(self) -> None:
        self.last_id = ""
        self.retry_ms: int | None = None
        self._rest = bytearray()
        self._searched = 0
        self._is_first_line = True
        self._event = ""
        self._data: list[str] = []
        self._id = ""

    def feed(self, part: bytes) -> list[ServerSentEvent]:
        """The events that these bytes complete."""
        self._rest += part
        events: list[ServerSentEvent] = []
        start = 0
        at = self._searched
        while found := _LINE_END.search(self._rest, at):
            if found.end() == len(self._rest) and self._rest[-1:] == b"\r":
                break  # a line feed may still follow and belong to it
            self._take(bytes(self._rest[start : found.start()]), events)
            start = at = found.end()
        del self._rest[:start]
        # What is left holds no line end, unless it is a carriage return at the very end.
        self._searched = max(len(self._rest) - 1, 0)
        return events

    def _take(self, line: bytes, events: list[ServerSentEvent]) -> None:
        text = line.decode("utf-8", "replace")
        if self._is_first_line:
            self._is_first_line = False
            text = text.removeprefix("\ufeff")
        if not text:
            self._dispatch(events)
            return
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        elif name == "id":
            if "\0" not in value:
                self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_ms = int(value[:9])

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        self.last_id = self._id
        if self._data:
            events.append(
                ServerSentEvent(self._event or "message", "\n".join(self._data), self._id)
            )
        self._event = ""
        self._data = []
