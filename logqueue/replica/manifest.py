"""The manifest: the one object of a replica that changes, by compare-and-swap only.

Owns: what a manifest says, and its key. Must not know: who changes it and when.
"""

from __future__ import annotations

import msgspec

from logqueue.replica.chunk import LogName

FORMAT = 1
MANIFEST_KEY = "manifest.json"
HEARTBEAT_KEY = "heartbeat.json"


class ManifestDamaged(Exception):
    """The object is not a manifest of this version; the message says why."""


class WriterInfo(msgspec.Struct, frozen=True):
    """A server that writes, or wrote.

    Attributes:
        id: Of one run of one server.
        address: Base URL at which clients reach it; "" when it is not known.
    """

    id: str
    address: str


class SegmentEntry(msgspec.Struct, frozen=True, array_like=True):
    """A sealed segment that is in the replica whole. All its frames were in chunks before.

    Attributes:
        log: Which log.
        id: Of the segment.
        first: Number of its first frame.
        last: Number of its last frame.
        bytes: Of its file.
        sha256: Of its file, in hex.
        at: Time of the last event in it, ms since the epoch.
        chunk: Number of the chunk that has its last frame.
    """

    log: LogName
    id: int
    first: int
    last: int
    bytes: int
    sha256: str
    at: int
    chunk: int


class KeepMark(msgspec.Struct, frozen=True, array_like=True):
    """What the state needed at a moment, and so at all later ones.

    Attributes:
        at: The moment, ms since the epoch.
        kept_from: By log, the first segment it needed.
        frame: Number of the last frame of the jobs log that was committed then: a transaction in a
            later one belongs to a later moment, whatever the clock says. 0 when it is not known.
    """

    at: int
    kept_from: dict[LogName, int]
    frame: int = 0


class ReplicaManifest(msgspec.Struct, frozen=True):
    """What a replica is, and where reading begins.

    Attributes:
        format: `FORMAT`.
        log_id: Identity of the jobs log, in hex.
        leases_id: Identity of the leases log, in hex.
        epoch: Of the present writer: one more with each.
        writer: The present writer.
        is_released: The writer has handed over: all it had is there, and it writes no more.
        segments: Sealed segments, each log's in order; from the oldest that is kept.
        kept_from: By log, the first segment that the present state needs; older ones are there for
            earlier moments.
        marks: What earlier moments need, in order; the first may be older than what is kept.
        reaches_back_to: Moments before this one cannot be restored: what they need was deleted. 0
            while nothing was.
        start_chunk: The first chunk whose frames are not all in `segments`.
        start_digest: Digest of the chunk before that; "" when there is none.
        garbage_before: Chunks with a lower number may be gone, all but takeovers. Moved before
            anything is deleted.
    """

    format: int
    log_id: str
    leases_id: str
    epoch: int
    writer: WriterInfo
    is_released: bool = False
    segments: tuple[SegmentEntry, ...] = ()
    kept_from: dict[LogName, int] = {}
    marks: tuple[KeepMark, ...] = ()
    reaches_back_to: int = 0
    start_chunk: int = 1
    start_digest: str = ""
    garbage_before: int = 1


# Several threads may not be the first to decode a type at the same time: made once, here.
_manifests = msgspec.json.Decoder(ReplicaManifest)


class WriterHeartbeat(msgspec.Struct, frozen=True):
    """What a writer renews while it runs. Only that it changes counts: no clocks are compared.

    Attributes:
        writer: Id of the writer.
        epoch: Of the writer.
        beat: One more each time.
        chunk: Number of the last chunk that was committed then; a reader notices when it is gone.
    """

    writer: str
    epoch: int
    beat: int
    chunk: int = 0


_heartbeats = msgspec.json.Decoder(WriterHeartbeat)


def decode_heartbeat(data: bytes) -> WriterHeartbeat | None:
    """Read a heartbeat; None when it is none."""
    try:
        return _heartbeats.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def segment_key(log: LogName, id: int) -> str:
    """Where a sealed segment is below the URL of the replica."""
    return f"segments/{log}/{id:020d}.wal"


def decode_manifest(data: bytes) -> ReplicaManifest:
    """Read a manifest.

    Raises:
        ManifestDamaged: It is none, or of a later version.
    """
    try:
        manifest = _manifests.decode(data)
    except msgspec.MsgspecError as error:
        raise ManifestDamaged(f"it cannot be read: {error}") from error
    if manifest.format != FORMAT:
        raise ManifestDamaged(f"it has format {manifest.format}; this version reads {FORMAT}")
    return manifest


def encode_manifest(manifest: ReplicaManifest) -> bytes:
    """The object."""
    return msgspec.json.encode(manifest)
