"""The errors of the log.

Owns the exception classes that callers may catch. Knows nothing of files, frames or threads.

    WalError
     +-- WalCorrupt       damage that recovery must not repair by itself: file, offset, reason
     +-- WalLocked        another process has the directory open
     +-- WalFull          no disk space for this append; the log is unchanged and stays usable
     +-- WalFailed        an earlier write or sync failed; only reopening the log clears it
     +-- WalClosed        the log was closed
     +-- RecordTooLarge   the payload is over frame_bytes_max

A bug in the log itself is an AssertionError and never one of these.
"""


class WalError(Exception):
    """Any refusal or failure of the log."""


class WalCorrupt(WalError):
    """Bytes that were once promised are damaged or missing.

    Attributes:
        file: path of the damaged file.
        offset: where in the file the damage begins, in bytes; None when it is about all of it, or
            about a file that is not there.
        reason: what is wrong there, for the operator.
    """

    def __init__(self, file: str, offset: int | None, reason: str) -> None:
        where = "" if offset is None else f"damaged at byte {offset}: "
        super().__init__(f"{file}: {where}{reason}")
        self.file = file
        self.offset = offset
        self.reason = reason


class WalLocked(WalError):
    """The directory is in use by another log, in this or another process."""


class WalFull(WalError):
    """No disk space could be allocated. Nothing was changed; try again when there is space."""


class WalFailed(WalError):
    """A write or sync failed earlier, so the state of the files is unknown.

    The log takes no more appends; what was reported durable stays durable. The failure itself is
    the `__cause__`.
    """


class WalClosed(WalError):
    """The log was closed."""


class FrameTooLarge(WalError):
    """The payload is longer than `frame_bytes_max`. Nothing was changed."""
