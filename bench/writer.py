"""What a lone writer waits for one durable append, beside what the bare device takes.

Owns: the rows of the lone writer, of the raw device, and of the bare HTTP round trip. Device and
writer take turns in short blocks, so that both see the same mood of the disk.
"""

from __future__ import annotations

from bench.load import LoneConnection, append_request, expect_count, job, queue_request, request
from bench.machine import RawDevice, Spread
from bench.rows import Row, Target
from bench.session import CpuWatch, Session

TOPIC = "bench.lone"
BLOCK_WRITES = 100
OVERHEAD_MAX_MS = 0.4


def raw_device(session: Session) -> list[Row]:
    """The device alone: what no durable server on it can beat."""
    rows = _device_rows()
    for _ in range(session.scale.repeats):
        device = RawDevice(session.directory / "raw", session.scale.lone_writes)
        try:
            _record(rows, Spread.of(device.sync_frames(session.scale.lone_writes)))
        finally:
            device.close()
    return rows


def lone_writer(session: Session) -> list[Row]:
    """One connection, one record per request, one at a time."""
    target = Target(OVERHEAD_MAX_MS, at_most=True, text=f"raw fdatasync p50 + {OVERHEAD_MAX_MS} ms")
    over = Row("lone-writer-over-raw", "lone writer, p50 above raw fdatasync p50", "ms", target)
    lone = [
        Row("lone-writer-p50", "lone writer, 1 per request, p50", "ms"),
        Row("lone-writer-p99", "lone writer, 1 per request, p99", "ms"),
    ]
    trip = Row("round-trip-p50", "GET /v0/health over the same connection, p50", "ms")
    device = _device_rows()
    for _ in range(session.scale.repeats):
        writer, raw, bare, cpu_us = _take_turns(session)
        _record(lone, writer)
        lone[0].cpu_us.append(cpu_us)
        _record(device, raw)
        trip.values.append(bare.p50_ms)
        over.values.append(writer.p50_ms - raw.p50_ms)
        session.tell(
            f"  lone-writer: p50 {writer.p50_ms:.3f} ms, p99 {writer.p99_ms:.3f} ms; "
            f"raw device p50 {raw.p50_ms:.3f} ms, p99 {raw.p99_ms:.3f} ms"
        )
    return [over, *lone, trip, *device]


def _take_turns(session: Session) -> tuple[Spread, Spread, Spread, float]:
    """Writer, device and bare round trip; and the server's microseconds for one write."""
    cpu_us = 0.0
    writes = session.scale.lone_writes
    written: list[float] = []
    synced: list[float] = []
    asked: list[float] = []
    health = request("GET", "/v0/health")
    with session.server() as server:
        device = RawDevice(session.directory / "raw", writes)
        connection = LoneConnection(server.address)
        try:
            connection.call(queue_request(TOPIC))
            while len(written) < writes:
                watch = CpuWatch(server)
                for _ in range(min(BLOCK_WRITES, writes - len(written))):
                    took, body = connection.call(append_request(TOPIC, [job(len(written))]))
                    expect_count(body, 1)
                    written.append(took)
                cpu_us += watch.us_per(writes)
                synced += device.sync_frames(BLOCK_WRITES)
                asked += [connection.call(health)[0] for _ in range(BLOCK_WRITES)]
        finally:
            connection.close()
            device.close()
    return Spread.of(written), Spread.of(synced), Spread.of(asked), cpu_us


def _device_rows() -> list[Row]:
    what = "device: raw pwrite of 256 B + fdatasync"
    return [Row("raw-p50", f"{what}, p50", "ms"), Row("raw-p99", f"{what}, p99", "ms")]


def _record(rows: list[Row], spread: Spread) -> None:
    rows[0].values.append(spread.p50_ms)
    rows[1].values.append(spread.p99_ms)
