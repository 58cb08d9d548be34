"""A segmented write-ahead log that anyone could reuse; standard library only.

Re-exports the public names and owns nothing itself. It has two kinds of users: those who write a
log (`Log`, and what it takes and raises), and those who read its files without opening it
(segments, frames, the note of the log). Import nothing from the modules themselves.
"""

from wal.committer import Stats
from wal.errors import FrameTooLarge, WalClosed, WalCorrupt, WalError, WalFailed, WalFull, WalLocked
from wal.files import CANNOT_LINK, NO_SPACE, DirectoryLock, File, FileSystem, OsFileSystem
from wal.format import (
    FRAME_ALIGN,
    FRAME_CHECKED_BYTES,
    FRAME_FIELDS,
    FRAME_HEADER_BYTES,
    FRAME_MAGIC,
    FRAME_MAGIC_BYTES,
    HEADER_BYTES,
    End,
    Frame,
    HeaderState,
    SegmentHeader,
    ShortSegment,
    Walk,
    decode_header,
    encode_header,
    frame_bytes,
    frames_behind,
    is_zero,
    salt_of,
)
from wal.head import HEAD_NAME, Head, HeadFile, encode_head_file, head_path, read_head
from wal.log import FRAME_BYTES_MAX, LOCK_NAME, Log, Progress
from wal.recovery import RecoveryOutcome, ran_on, survey
from wal.salvage import Loss
from wal.segment import SegmentInfo, read_whole, segment_ids, segment_path
from wal.whole_frames import find_whole_frames

__all__ = [
    "CANNOT_LINK",
    "FRAME_ALIGN",
    "FRAME_BYTES_MAX",
    "FRAME_CHECKED_BYTES",
    "FRAME_FIELDS",
    "FRAME_HEADER_BYTES",
    "FRAME_MAGIC",
    "FRAME_MAGIC_BYTES",
    "HEADER_BYTES",
    "HEAD_NAME",
    "LOCK_NAME",
    "NO_SPACE",
    "DirectoryLock",
    "End",
    "File",
    "FileSystem",
    "Frame",
    "FrameTooLarge",
    "Head",
    "HeadFile",
    "HeaderState",
    "Log",
    "Loss",
    "OsFileSystem",
    "Progress",
    "RecoveryOutcome",
    "SegmentHeader",
    "SegmentInfo",
    "ShortSegment",
    "Stats",
    "WalClosed",
    "WalCorrupt",
    "WalError",
    "WalFailed",
    "WalFull",
    "WalLocked",
    "Walk",
    "decode_header",
    "encode_head_file",
    "encode_header",
    "find_whole_frames",
    "frame_bytes",
    "frames_behind",
    "head_path",
    "is_zero",
    "ran_on",
    "read_head",
    "read_whole",
    "salt_of",
    "segment_ids",
    "segment_path",
    "survey",
]
