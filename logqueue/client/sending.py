"""How an append gathers and sends batches: the one part of the clients that is written twice.

Owns: chunks of records, and the overlap of gathering with sending, which only the awaiting client
has. Must not know: requests, replies, HTTP.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from itertools import islice
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

T = TypeVar("T")


class AsyncBatchSender(Generic[T]):
    """Sends one batch while the next one is gathered.

    Leaving the context waits for the last batch, also after an error: what is on its way may still
    be stored. A cancellation cancels it.
    """

    def __init__(self, send: Callable[[T], Coroutine[Any, Any, None]]) -> None:
        self._send = send
        self._sending: asyncio.Task[None] | None = None

    async def begin(self, batch: T) -> None:
        """Begin to send a batch once the batch before it is stored.

        Raises:
            Exception: The batch before failed; this one is not sent.
        """
        if self._sending is not None:
            await self._sending
        self._sending = asyncio.create_task(self._send(batch))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._sending is None:
            return
        try:
            if error is None:
                await self._sending
            elif isinstance(error, Exception):
                await asyncio.gather(self._sending, return_exceptions=True)
        finally:
            self._sending.cancel()


class BatchSender(Generic[T]):
    """Sends one batch after the other."""

    def __init__(self, send: Callable[[T], None]) -> None:
        self._send = send

    def begin(self, batch: T) -> None:
        """Send a batch.

        Raises:
            Exception: It failed.
        """
        self._send(batch)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


async def async_chunks(
    records: Iterable[T] | AsyncIterable[T], size: int
) -> AsyncGenerator[Sequence[T], None]:
    """The records in lists of this size; the last may be shorter."""
    if not isinstance(records, AsyncIterable):
        for part in chunks(records, size):
            yield part
        return
    gathered: list[T] = []
    async for record in records:
        gathered.append(record)
        if len(gathered) == size:
            yield gathered
            gathered = []
    if gathered:
        yield gathered


def chunks(records: Iterable[T], size: int) -> Iterator[Sequence[T]]:
    """The records in lists of this size; the last may be shorter."""
    source = iter(records)
    while part := [*islice(source, size)]:
        yield part
