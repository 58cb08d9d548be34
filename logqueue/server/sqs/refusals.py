"""Refusals as clients of SQS know them.

Owns: the errors of SQS with their names in both of its protocols, and which of them each error of
the API becomes. Must not know: actions, queues.
"""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import uuid4

import msgspec

from logqueue import errors
from logqueue.server.http.requests import ForeignRefusal, HttpRequest, Reply

AMZ_JSON: Final = (b"content-type", b"application/x-amz-json-1.0")
_MODEL: Final = "com.amazonaws.sqs#"
_SERVICE: Final = "com.amazon.coral.service#"


class SqsErrorKind(NamedTuple):
    """One kind of error.

    Attributes:
        shape: Its name in the JSON protocol, with its namespace.
        code: Its name in the query protocol, by which clients of many years know it.
    """

    shape: str
    code: str
    status: int = 400

    @property
    def is_senders(self) -> bool:
        """Whether the request was wrong."""
        return self.status < 500


def _of_model(name: str, code: str = "") -> SqsErrorKind:
    return SqsErrorKind(_MODEL + name, code or name)


_OLD = "AWS.SimpleQueueService."
QUEUE_DOES_NOT_EXIST = _of_model("QueueDoesNotExist", _OLD + "NonExistentQueue")
QUEUE_NAME_EXISTS = _of_model("QueueNameExists", "QueueAlreadyExists")
RECEIPT_HANDLE_IS_INVALID = _of_model("ReceiptHandleIsInvalid")
MESSAGE_NOT_INFLIGHT = _of_model("MessageNotInflight", _OLD + "MessageNotInflight")
EMPTY_BATCH = _of_model("EmptyBatchRequest", _OLD + "EmptyBatchRequest")
TOO_MANY_ENTRIES = _of_model("TooManyEntriesInBatchRequest", _OLD + "TooManyEntriesInBatchRequest")
ENTRY_IDS_NOT_DISTINCT = _of_model("BatchEntryIdsNotDistinct", _OLD + "BatchEntryIdsNotDistinct")
BATCH_TOO_LONG = _of_model("BatchRequestTooLong", _OLD + "BatchRequestTooLong")
INVALID_ENTRY_ID = _of_model("InvalidBatchEntryId", _OLD + "InvalidBatchEntryId")
UNSUPPORTED = _of_model("UnsupportedOperation", _OLD + "UnsupportedOperation")
PURGE_IN_PROGRESS = _of_model("PurgeQueueInProgress", _OLD + "PurgeQueueInProgress")
INVALID_CONTENTS = _of_model("InvalidMessageContents")
INVALID_ATTRIBUTE_NAME = _of_model("InvalidAttributeName")
INVALID_ATTRIBUTE_VALUE = _of_model("InvalidAttributeValue")
INVALID_ADDRESS = _of_model("InvalidAddress")
RESOURCE_NOT_FOUND = _of_model("ResourceNotFoundException")
THROTTLED = _of_model("RequestThrottled")
INVALID_PARAMETER = SqsErrorKind(
    _SERVICE + "InvalidParameterValueException", "InvalidParameterValue"
)
MISSING_PARAMETER = SqsErrorKind(_SERVICE + "MissingParameterException", "MissingParameter")
SERIALIZATION = SqsErrorKind(_SERVICE + "SerializationException", "MalformedInput")
INVALID_ACTION = SqsErrorKind(_SERVICE + "UnknownOperationException", "InvalidAction")
TOO_LARGE = SqsErrorKind(_SERVICE + "RequestEntityTooLargeException", "RequestEntityTooLarge", 413)
ACCESS_DENIED = SqsErrorKind(_SERVICE + "AccessDeniedException", "AccessDenied", 403)
NO_TOKEN = SqsErrorKind(
    _SERVICE + "MissingAuthenticationTokenException", "MissingAuthenticationToken", 403
)
UNKNOWN_TOKEN = SqsErrorKind(_SERVICE + "UnrecognizedClientException", "InvalidClientTokenId", 403)
BAD_SIGNATURE = SqsErrorKind(_SERVICE + "InvalidSignatureException", "SignatureDoesNotMatch", 403)
INCOMPLETE_SIGNATURE = SqsErrorKind(
    _SERVICE + "IncompleteSignatureException", "IncompleteSignature", 400
)
UNAVAILABLE = SqsErrorKind(_SERVICE + "ServiceUnavailableException", "ServiceUnavailable", 503)
FAILURE = SqsErrorKind(_SERVICE + "InternalFailure", "InternalFailure", 500)

_KINDS: Final[tuple[tuple[type[errors.LogqueueError], SqsErrorKind], ...]] = (
    (errors.TopicNotFound, QUEUE_DOES_NOT_EXIST),
    (errors.NotAQueue, QUEUE_DOES_NOT_EXIST),
    (errors.NotFound, RESOURCE_NOT_FOUND),
    (errors.Forbidden, ACCESS_DENIED),
    (errors.Unauthorized, UNKNOWN_TOKEN),
    (errors.TopicExistsIncompatible, QUEUE_NAME_EXISTS),
    (errors.RouterCycle, INVALID_ATTRIBUTE_VALUE),
    (errors.TopicFull, THROTTLED),
    (errors.Throttled, THROTTLED),
    (errors.PayloadTooLarge, TOO_LARGE),
    (errors.Internal, FAILURE),
)
"""The first that fits; by status otherwise."""


class SqsRefusal(ForeignRefusal):
    """A refusal in the terms of SQS.

    Attributes:
        kind: Which error.
        message: What is wrong, for people.
    """

    def __init__(self, kind: SqsErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message


def refusal_of(error: Exception, request: HttpRequest) -> SqsRefusal:
    """An error in the terms of SQS, without names that the caller may not read."""
    if isinstance(error, SqsRefusal):
        return error
    assert isinstance(error, errors.LogqueueError)
    kind = _kind_of(error)
    if kind is QUEUE_DOES_NOT_EXIST:
        return SqsRefusal(kind, "The specified queue does not exist.")
    return SqsRefusal(kind, error.hiding(request.allows).message)


def _kind_of(error: errors.LogqueueError) -> SqsErrorKind:
    for of, kind in _KINDS:
        if isinstance(error, of):
            return kind
    return UNAVAILABLE if error.status >= 500 else INVALID_PARAMETER


def refuse(request: HttpRequest, error: Exception) -> Reply:
    """The reply to a request that was refused."""
    refusal = refusal_of(error, request)
    kind = refusal.kind
    body = msgspec.json.encode({"__type": kind.shape, "message": refusal.message})
    fault = b"Sender" if kind.is_senders else b"Receiver"
    code = (b"x-amzn-query-error", kind.code.encode() + b";" + fault)
    return Reply(body, kind.status, (request_id(), code), AMZ_JSON)


def request_id() -> tuple[bytes, bytes]:
    """The header that names one request, which clients show and log."""
    return (b"x-amzn-requestid", str(uuid4()).encode())
