"""A segmented write-ahead log that anyone could reuse; standard library only.

Re-exports the public names and owns nothing itself.
"""

from wal.committer import Stats
from wal.errors import (
    FrameTooLarge,
    WalClosed,
    WalCorrupt,
    WalError,
    WalFailed,
    WalFull,
    WalLocked,
)
from wal.files import DirectoryLock, File, FileSystem, OsFileSystem
from wal.format import Frame
from wal.log import Log
from wal.salvage import Loss
from wal.segment import SegmentInfo

__all__ = [
    "DirectoryLock",
    "File",
    "FileSystem",
    "Frame",
    "FrameTooLarge",
    "Log",
    "Loss",
    "OsFileSystem",
    "SegmentInfo",
    "Stats",
    "WalClosed",
    "WalCorrupt",
    "WalError",
    "WalFailed",
    "WalFull",
    "WalLocked",
]
