"""Reads a server-sent event stream over a raw connection, never longer than its timeout.

Owns: frame parsing, as strict as the contract (LF only, one data line). Must not know: jobs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from tests.http import rawhttp

FRAME_TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Frame:
    """One block of the stream: a named event, a retry line or a comment."""

    event: str | None
    id: str | None
    data: str | None
    retry: str | None
    comment: str | None
    text: str

    def json(self) -> dict[str, Any]:
        """The data line, parsed."""
        assert self.data is not None, f"frame without data: {self.text!r}"
        parsed = json.loads(self.data)
        assert isinstance(parsed, dict)
        return parsed


class Stream:
    """An open event stream, or the refusal that came instead."""

    def __init__(
        self,
        address: rawhttp.Address,
        path: str,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float = FRAME_TIMEOUT_S,
    ) -> None:
        sent = {"accept": "text/event-stream", **(headers or {})}
        self._connection = rawhttp.Connection(address)
        try:
            self._connection.send(rawhttp.head("GET", path, sent))
            deadline = time.monotonic() + timeout_s
            self.status, self.headers = self._connection.read_head(deadline)
        except BaseException:
            self._connection.close()
            raise
        self._chunked = self.headers.get("transfer-encoding", "").lower() == "chunked"
        self._text = b""
        self._ended = False
        self.frames: list[Frame] = []

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def reply(self, timeout_s: float = FRAME_TIMEOUT_S) -> rawhttp.RawReply:
        """The whole reply that came instead of a stream."""
        assert self.status != 200, "the stream was opened"
        deadline = time.monotonic() + timeout_s
        return self._connection.read_body(self.status, self.headers, deadline)

    def close(self) -> None:
        """Leave the stream politely."""
        self._connection.close()

    def reset(self) -> None:
        """Leave the stream as a crashed client would."""
        self._connection.reset()

    def next_frame(self, timeout_s: float = FRAME_TIMEOUT_S) -> Frame:
        """The next block of any kind."""
        deadline = time.monotonic() + timeout_s
        while b"\n\n" not in self._text:
            part = self._read(deadline)
            if not part:
                raise rawhttp.Closed(f"stream ended; unread: {self._text!r}")
            self._text += part
        block, _, self._text = self._text.partition(b"\n\n")
        frame = parse(block)
        self.frames.append(frame)
        return frame

    def next_event(self, timeout_s: float = FRAME_TIMEOUT_S) -> Frame:
        """The next named event; comments and retry lines are passed over."""
        deadline = time.monotonic() + timeout_s
        while True:
            frame = self.next_frame(max(deadline - time.monotonic(), 0.001))
            if frame.event is not None:
                return frame

    def until(self, event: str, timeout_s: float = FRAME_TIMEOUT_S) -> list[Frame]:
        """The named events up to the first of this kind, and that one."""
        deadline = time.monotonic() + timeout_s
        found: list[Frame] = []
        while not found or found[-1].event != event:
            found.append(self.next_event(max(deadline - time.monotonic(), 0.001)))
        return found

    def jobs(self, count: int, timeout_s: float = FRAME_TIMEOUT_S) -> list[dict[str, Any]]:
        """The data of the next job frames, exactly so many."""
        deadline = time.monotonic() + timeout_s
        jobs: list[dict[str, Any]] = []
        while len(jobs) < count:
            frame = self.next_event(max(deadline - time.monotonic(), 0.001))
            assert frame.event == "job", frame
            assert frame.id == str(frame.json()["$seq"]), frame
            jobs.append(frame.json())
        return jobs

    def quiet(self, for_s: float) -> bool:
        """True when no named event comes in this time."""
        try:
            self.next_event(for_s)
        except TimeoutError:
            return True
        return False

    def ended(self, timeout_s: float = FRAME_TIMEOUT_S) -> bool:
        """True when the server ends the stream in time without another named event."""
        try:
            self.next_event(timeout_s)
        except rawhttp.Closed:
            return True
        except TimeoutError:
            return False
        return False

    def _read(self, deadline: float) -> bytes:
        if self._ended:
            return b""
        try:
            part = (
                self._connection.read_chunk(deadline)
                if self._chunked
                else self._connection.read_some(deadline)
            )
        except rawhttp.Closed:
            part = b""
        self._ended = not part
        return part


def parse(block: bytes) -> Frame:
    """One block without its blank line."""
    text = block.decode()
    assert "\r" not in text, f"carriage return in {text!r}"
    fields: dict[str, str] = {}
    comment: str | None = None
    for line in text.split("\n"):
        if line.startswith(":"):
            comment = line[1:].strip()
            continue
        name, _, value = line.partition(":")
        assert name not in fields, f"{name} twice in {text!r}"
        fields[name] = value.removeprefix(" ")
    return Frame(
        event=fields.get("event"),
        id=fields.get("id"),
        data=fields.get("data"),
        retry=fields.get("retry"),
        comment=comment,
        text=text,
    )
