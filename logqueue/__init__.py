"""A durable log and lease-queue server that fits on one machine, and its Python client.

Owns: the names that users import. They load when they are first used: `import logqueue` alone
costs next to nothing, and the server and the command line pay for no client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from logqueue.version import __version__ as __version__

if TYPE_CHECKING:
    from logqueue.client import AsyncClient as AsyncClient
    from logqueue.client import Backoff as Backoff
    from logqueue.client import Client as Client
    from logqueue.client import ConnectionFailed as ConnectionFailed
    from logqueue.client import FollowUp as FollowUp
    from logqueue.client import From as From
    from logqueue.client import GatewayFailed as GatewayFailed
    from logqueue.client import Interrupted as Interrupted
    from logqueue.client import LostReply as LostReply
    from logqueue.client import NewRecord as NewRecord
    from logqueue.client import NextStep as NextStep
    from logqueue.client import Settled as Settled
    from logqueue.client import TlsFailed as TlsFailed
    from logqueue.client import UnexpectedReply as UnexpectedReply
    from logqueue.client import Unreachable as Unreachable
    from logqueue.errors import BatchClosed as BatchClosed
    from logqueue.errors import BatchExists as BatchExists
    from logqueue.errors import BatchNotEmpty as BatchNotEmpty
    from logqueue.errors import BatchNotFound as BatchNotFound
    from logqueue.errors import BatchTooLarge as BatchTooLarge
    from logqueue.errors import ConfigChanged as ConfigChanged
    from logqueue.errors import EpochConflict as EpochConflict
    from logqueue.errors import Fenced as Fenced
    from logqueue.errors import Forbidden as Forbidden
    from logqueue.errors import Internal as Internal
    from logqueue.errors import InvalidRequest as InvalidRequest
    from logqueue.errors import JobInFlight as JobInFlight
    from logqueue.errors import KeyConflict as KeyConflict
    from logqueue.errors import LogqueueError as LogqueueError
    from logqueue.errors import MethodNotAllowed as MethodNotAllowed
    from logqueue.errors import NotAcceptable as NotAcceptable
    from logqueue.errors import NotAQueue as NotAQueue
    from logqueue.errors import NotFound as NotFound
    from logqueue.errors import NotReady as NotReady
    from logqueue.errors import NotWriter as NotWriter
    from logqueue.errors import PayloadTooLarge as PayloadTooLarge
    from logqueue.errors import RangeNotSatisfiable as RangeNotSatisfiable
    from logqueue.errors import RecordTooLarge as RecordTooLarge
    from logqueue.errors import ReplicaUnavailable as ReplicaUnavailable
    from logqueue.errors import RouterCycle as RouterCycle
    from logqueue.errors import RouterNotFound as RouterNotFound
    from logqueue.errors import ScheduleNotFound as ScheduleNotFound
    from logqueue.errors import SegmentNotFound as SegmentNotFound
    from logqueue.errors import ShuttingDown as ShuttingDown
    from logqueue.errors import StorageFull as StorageFull
    from logqueue.errors import StorageReadOnly as StorageReadOnly
    from logqueue.errors import StorageUnreadable as StorageUnreadable
    from logqueue.errors import Throttled as Throttled
    from logqueue.errors import TopicExistsIncompatible as TopicExistsIncompatible
    from logqueue.errors import TopicFull as TopicFull
    from logqueue.errors import TopicNotEmpty as TopicNotEmpty
    from logqueue.errors import TopicNotFound as TopicNotFound
    from logqueue.errors import Unauthorized as Unauthorized
    from logqueue.errors import UnsupportedMediaType as UnsupportedMediaType
    from logqueue.shapes import CaughtUp as CaughtUp
    from logqueue.shapes import Gap as Gap
    from logqueue.shapes import Job as Job
    from logqueue.shapes import Record as Record
    from logqueue.shapes import Records as Records
    from logqueue.shapes import Tombstone as Tombstone
    from logqueue.shapes import TopicDeleted as TopicDeleted
    from logqueue.worker import AckPolicy as AckPolicy
    from logqueue.worker import App as App
    from logqueue.worker import Cron as Cron
    from logqueue.worker import Every as Every
    from logqueue.worker import JobFailed as JobFailed
    from logqueue.worker import JobHandle as JobHandle
    from logqueue.worker import Reject as Reject
    from logqueue.worker import ResultGone as ResultGone
    from logqueue.worker import Retry as Retry
    from logqueue.worker import RetryLater as RetryLater
    from logqueue.worker import Snooze as Snooze
    from logqueue.worker import Worker as Worker
    from logqueue.worker import current_job as current_job
    from logqueue.worker import run_worker as run_worker
    from logqueue.worker import should_stop as should_stop

_HOMES = {
    "logqueue.client": (
        "AsyncClient",
        "Backoff",
        "Client",
        "ConnectionFailed",
        "FollowUp",
        "From",
        "GatewayFailed",
        "Interrupted",
        "LostReply",
        "NewRecord",
        "Settled",
        "NextStep",
        "TlsFailed",
        "UnexpectedReply",
        "Unreachable",
    ),
    "logqueue.errors": (
        "BatchClosed",
        "BatchExists",
        "BatchNotEmpty",
        "BatchNotFound",
        "BatchTooLarge",
        "ConfigChanged",
        "EpochConflict",
        "Forbidden",
        "Internal",
        "Fenced",
        "InvalidRequest",
        "JobInFlight",
        "KeyConflict",
        "LogqueueError",
        "MethodNotAllowed",
        "NotAQueue",
        "NotAcceptable",
        "NotFound",
        "NotReady",
        "NotWriter",
        "PayloadTooLarge",
        "RangeNotSatisfiable",
        "RecordTooLarge",
        "ReplicaUnavailable",
        "RouterCycle",
        "RouterNotFound",
        "ScheduleNotFound",
        "SegmentNotFound",
        "ShuttingDown",
        "StorageFull",
        "StorageUnreadable",
        "StorageReadOnly",
        "Throttled",
        "TopicExistsIncompatible",
        "TopicFull",
        "TopicNotEmpty",
        "TopicNotFound",
        "Unauthorized",
        "UnsupportedMediaType",
    ),
    "logqueue.shapes": (
        "CaughtUp",
        "Gap",
        "Job",
        "Record",
        "Records",
        "Tombstone",
        "TopicDeleted",
    ),
    "logqueue.worker": (
        "AckPolicy",
        "App",
        "Cron",
        "Every",
        "JobFailed",
        "JobHandle",
        "Reject",
        "ResultGone",
        "Retry",
        "RetryLater",
        "Snooze",
        "Worker",
        "current_job",
        "run_worker",
        "should_stop",
    ),
}
"""Which module each public name lives in; the imports above tell type checkers the same."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


if not TYPE_CHECKING:  # to a type checker, a name that is not above is a mistake

    def __getattr__(name: str) -> Any:
        home = _HOME_OF.get(name)
        if home is None:
            raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
        value = globals()[name] = getattr(import_module(home), name)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOME_OF})
