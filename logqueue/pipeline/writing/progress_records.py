"""What a server remembers of a job that writes: its content, and how far it has come.

Owns: a producer that appends nothing and whose epochs are notes. Must not know: what the job does,
Spark.

A write id must mean one content for ever, and the server is the only place that every run of a job
shares. It keeps the last epoch of a producer with a digest, for 30 days of silence; a repeat of
that epoch with another digest is refused. So a note is an epoch without records: its number says
where the job is, its digest what the job is about.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from logqueue.client import Client
from logqueue.errors import EpochConflict, NotFound
from logqueue.pipeline.errors import PipelineError


def digest(content: Any) -> str:
    """One short text for any JSON value; equal for equal values."""
    text = json.dumps(content, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


class WriteMemory:
    """The notes of one job."""

    def __init__(self, client: Client, name: str, content: str) -> None:
        """Nothing is noted yet.

        Args:
            client: Of the server that the job writes to.
            name: Of the producer; a job that is run again has the same.
            content: Digest of all that the job is about.
        """
        self._client = client
        self._name = name
        self._content = content

    def last(self) -> int | None:
        """The last note; None when the job was never started.

        Raises:
            PipelineError: The job of this name was about something else.
            LogqueueError: The server refuses, or is not there.
        """
        try:
            last = self._client.producer(self._name).last_epoch
        except NotFound:
            return None
        if last is not None:
            self.note(last)
        return last

    def note(self, number: int) -> None:
        """Note how far the job is: any number at first, then one more each time; the last one may
        be repeated.

        Raises:
            PipelineError: The job of this name was about something else.
            LogqueueError: The server refuses, or is not there.
        """
        try:
            self._client.commit(self._name, number, [], content=self._content)
        except EpochConflict as error:
            raise PipelineError(
                f"{self._name} was started with other content or settings ({error.message}); "
                "nothing was written. Give the very same input and settings to go on with it, or "
                "choose a new write id for another job"
            ) from error
