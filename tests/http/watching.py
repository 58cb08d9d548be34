"""What the frames of a watch stream say: seqs, data, and the cursors in their ids.

Owns: reading of frames, event ids made by hand, refused openings. Must not know: single tests.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from typing import Any

from tests.http import rawhttp
from tests.http.api import Api
from tests.http.expect import Json
from tests.http.sse import FRAME_TIMEOUT_S, Frame, Stream

URL_SAFE = re.compile(r"[A-Za-z0-9_-]+")


def cursors_in(frame: Frame) -> dict[str, int]:
    """The cursors that the id of a frame holds; the id is URL-safe base64 without padding."""
    assert frame.id is not None and URL_SAFE.fullmatch(frame.id), frame
    padding = "=" * (-len(frame.id) % 4)
    found = json.loads(base64.urlsafe_b64decode(frame.id + padding))
    assert isinstance(found, dict), found
    assert all(type(cursor) is int for cursor in found.values()), found
    return found


def event_id(cursors: object) -> str:
    """An id as the server would make it."""
    text = json.dumps(cursors, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def records_in(frames: Iterable[Frame], topic: str | None = None) -> list[Json]:
    """All records of the record frames, of one topic or of all."""
    return [
        record
        for body in bodies(frames, "record")
        if topic in (None, body["topic"])
        for record in body["records"]
    ]


def seqs_in(frames: Iterable[Frame], topic: str | None = None) -> list[int]:
    """The seqs of all records, in order of arrival."""
    return [record["$seq"] for record in records_in(frames, topic)]


def data_in(frames: Iterable[Frame], topic: str | None = None) -> list[Any]:
    """The data of all records, in order of arrival."""
    return [record["data"] for record in records_in(frames, topic)]


def bodies(frames: Iterable[Frame], event: str) -> list[Json]:
    """The data of all frames of one kind."""
    return [frame.json() for frame in frames if frame.event == event]


def kinds(frames: Iterable[Frame]) -> list[str | None]:
    """The kinds of the frames, equal neighbours taken together."""
    found: list[str | None] = []
    for frame in frames:
        if found[-1:] != [frame.event]:
            found.append(frame.event)
    return found


def refusal(
    api: Api, wid: str, key: str | None = None, accept: str = "text/event-stream"
) -> rawhttp.RawReply:
    """What an opening gets that is expected to be refused."""
    headers = {"accept": accept}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    with Stream(api.address, f"/v0/watch/{wid}", headers) as stream:
        return stream.reply()


def drain(stream: Stream, topics: int = 1) -> list[Frame]:
    """Frames up to the moment when so many topics have said that they are caught up."""
    frames: list[Frame] = []
    said: set[str] = set()
    while len(said) < topics:
        frames += stream.until("caught-up")
        said.add(frames[-1].json()["topic"])
    return frames


def receive(stream: Stream, count: int) -> list[Frame]:
    """Frames up to the moment when so many records, exactly, have come."""
    frames: list[Frame] = []
    while len(seqs_in(frames)) < count:
        frames.append(stream.next_event(FRAME_TIMEOUT_S))
    assert len(seqs_in(frames)) == count, frames
    return frames
