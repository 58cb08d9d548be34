"""A log that a real server has written, in many small segments, and what is in it.

Owns: the history, told once by what clients were answered, and rows of readers as plain values.
Must not know: Spark.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from logqueue.client import Client, NewRecord
from logqueue.pipeline.engines.spark.formats.live_source import LogQueueSource
from logqueue.pipeline.engines.spark.formats.readers import BatchReader, StreamReader
from logqueue.pipeline.engines.spark.formats.wal_source import LogQueueWalSource
from logqueue.shapes import Appended
from logqueue.testing import ServerProcess

SMALL = "65536"
ORDERS, NOTES = 900, 300
PAD = "x" * 120


@dataclass
class Written:
    """What a server holds, or held.

    Attributes:
        data, archive: Its directories.
        url: While it runs.
        rows: By topic and seq, what each record said: (tag, node, meta, data), as JSON texts.
        acked: Seqs of orders that were acked.
    """

    data: Path
    archive: Path
    url: str = ""
    rows: dict[tuple[str, int], tuple[str | None, str | None, str | None, str]] = field(
        default_factory=dict
    )
    acked: list[int] = field(default_factory=list)

    def write(self, client: Client, topic: str, records: list[NewRecord], texts: list[str]) -> None:
        """Append records whose data is these texts, and note what was answered."""
        reply = client.append(topic, records, create=True)
        assert isinstance(reply, Appended) and reply.seqs is not None
        for seq, record, text in zip(reply.seqs, records, texts, strict=True):
            meta = None if record.meta is None else '{"of":"notes"}'
            self.rows[topic, seq] = (record.tag, record.node, meta, text)

    def orders(self, client: Client, count: int) -> None:
        """Append to the queue, 100 at a time."""
        first = 1 + sum(topic == "orders" for topic, _ in self.rows)
        for start in range(first, first + count, 100):
            seqs = range(start, min(start + 100, first + count))
            texts = [f'{{"n":{seq},"pad":"{PAD}"}}' for seq in seqs]
            records = [NewRecord({"n": seq, "pad": PAD}) for seq in seqs]
            self.write(client, "orders", records, texts)

    def keep_sealed(self) -> None:
        """What a server's archive holds after a while: every sealed segment."""
        for name in ("jobs", "leases"):
            (self.archive / name).mkdir(parents=True, exist_ok=True)
            for path in sorted((self.data / name).glob("*.wal"))[:-1]:
                shutil.copy2(path, self.archive / name / path.name)

    def copy(self, to: Path, *, dropped: int = 0) -> Path:
        """The data directory as it is, without the oldest segments of the jobs log."""
        shutil.copytree(self.data, to)
        for path in sorted((to / "jobs").glob("*.wal"))[:dropped]:
            path.unlink()
        return to


def fill(server: ServerProcess, written: Written) -> None:
    """A queue and a log with a few hundred records each, some of the jobs claimed and acked."""
    written.url = server.url
    with Client(server.url, node="maker") as client:
        client.put_topic("orders", type="queue", lease_ms=600_000)
        client.put_topic("notes")
        written.orders(client, ORDERS)
        for start in range(1, NOTES + 1, 50):
            seqs = range(start, start + 50)
            records = [
                NewRecord(seq, tag=f"t{seq % 3}", node="me", meta={"of": "notes"}) for seq in seqs
            ]
            written.write(client, "notes", records, [str(seq) for seq in seqs])
        claimed = client.claim("orders", max=40).jobs
        client.ack("orders", claimed[:30])
        client.nack("orders", claimed[30:35])
        written.acked = [job.seq for job in claimed[:30]]


def offline(path: Path | str, **given: str) -> dict[str, str]:
    """Options to read directories with; all topics unless some are named."""
    return {"path": str(path), **_topics(given), **given}


def live(written: Written, **given: str) -> dict[str, str]:
    """Options to read the server with."""
    return {"url": written.url, **_topics(given), **given}


def _topics(given: dict[str, str]) -> dict[str, str]:
    return {} if "topics" in given or "topicPattern" in given else {"topicPattern": ".*"}


def source(given: dict[str, str]) -> LogQueueSource | LogQueueWalSource:
    """The source that these options are for."""
    return LogQueueSource(given) if "url" in given else LogQueueWalSource(given)


def batch(given: dict[str, str]) -> BatchReader:
    """A batch reader, as Spark would make it."""
    reader = source(given).reader(None)  # type: ignore[arg-type]
    assert isinstance(reader, BatchReader)
    return reader


def stream(given: dict[str, str]) -> StreamReader:
    """A stream reader, as Spark would make it."""
    reader = source(given).streamReader(None)  # type: ignore[arg-type]
    assert isinstance(reader, StreamReader)
    return reader


def read(reader: BatchReader | StreamReader, partitions: Iterable[Any]) -> list[dict[str, Any]]:
    """All rows of some partitions."""
    return [
        row
        for partition in partitions
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]


def rows_of(given: dict[str, str]) -> list[dict[str, Any]]:
    """All rows of a batch."""
    reader = batch(given)
    return read(reader, reader.partitions())


def keys(rows: Iterable[dict[str, Any]]) -> list[tuple[str, int]]:
    """Topic and seq of each row, sorted."""
    return sorted((row["topic"], row["seq"]) for row in rows)


def planned(reader: BatchReader) -> int:
    """Bytes of log that a batch would fetch."""
    return sum(partition.value.bytes for partition in reader.partitions() if partition.value)
