"""Leases as SQS knows them, and jobs of others as messages: in memory, under a manual clock."""

from __future__ import annotations

import json
from hashlib import md5
from typing import Any

import pytest

from logqueue.errors import NotWriter
from tests.server.memory import claimed
from tests.sqs.memory import Refused, SqsMemory, taken


def handle_of(message: dict[str, Any]) -> str:
    found: str = message["ReceiptHandle"]
    return found


def test_a_message_returns_after_its_timeout(memory: SqsMemory) -> None:
    memory.create(VisibilityTimeout="5")
    sent = memory.send("a")
    (first,) = memory.receive()
    assert memory.receive() == []
    memory.wait(5.01)
    (second,) = memory.receive()
    assert first["MessageId"] == second["MessageId"] == sent["MessageId"]
    assert second["Attributes"]["ApproximateReceiveCount"] == "2"
    received = [m["Attributes"]["ApproximateFirstReceiveTimestamp"] for m in (first, second)]
    assert received[0] == received[1]
    # The first handle is no longer the last one: it deletes nothing, and that is no error.
    memory.act("DeleteMessage", "q", ReceiptHandle=handle_of(first))
    assert memory.state()["in_flight"] == 1
    memory.act("DeleteMessage", "q", ReceiptHandle=handle_of(second))
    memory.act("DeleteMessage", "q", ReceiptHandle=handle_of(second))
    assert memory.state()["acked"] == 1


def test_the_last_handle_deletes_after_the_timeout(memory: SqsMemory) -> None:
    memory.create(VisibilityTimeout="5")
    memory.send("a")
    memory.send("b")
    first, second = memory.receive()
    memory.wait(6)
    memory.act(
        "DeleteMessageBatch",
        "q",
        Entries=[{"Id": str(n), "ReceiptHandle": handle_of(m)} for n, m in enumerate((first,))],
    )
    assert [m["Body"] for m in memory.receive()] == ["b"]
    assert memory.state()["in_flight"] == 1
    memory.act("DeleteMessage", "q", ReceiptHandle=handle_of(second))
    assert memory.state()["in_flight"] == 1


def test_visibility_is_changed_from_now_on(memory: SqsMemory) -> None:
    memory.create(VisibilityTimeout="5")
    memory.send("a")
    (message,) = memory.receive(VisibilityTimeout=10)
    memory.wait(9)
    change = {"ReceiptHandle": handle_of(message)}
    memory.act("ChangeMessageVisibility", "q", **change, VisibilityTimeout=20)
    memory.wait(19)
    assert memory.receive() == []
    memory.act("ChangeMessageVisibility", "q", **change, VisibilityTimeout=0)
    with pytest.raises(Refused, match="MessageNotInflight"):
        memory.act("ChangeMessageVisibility", "q", **change, VisibilityTimeout=1)
    (again,) = memory.receive()
    memory.act("DeleteMessage", "q", ReceiptHandle=handle_of(again))
    with pytest.raises(Refused, match="InvalidParameterValue"):
        memory.act("ChangeMessageVisibility", "q", **change, VisibilityTimeout=1)


def test_a_receive_that_hides_nothing(memory: SqsMemory) -> None:
    memory.create()
    memory.send("a")
    for count in ("1", "2", "3"):
        (message,) = memory.receive(VisibilityTimeout=0)
        assert message["Attributes"]["ApproximateReceiveCount"] == count
    memory.act("DeleteMessage", "q", ReceiptHandle=handle_of(message))
    assert memory.receive() == []


def test_delays(memory: SqsMemory) -> None:
    memory.create(DelaySeconds="10")
    memory.send("queue's")
    memory.send("its own", DelaySeconds=3)
    memory.send("none", DelaySeconds=0)
    assert [m["Body"] for m in memory.receive()] == ["none"]
    counts = memory.act("GetQueueAttributes", "q", AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessagesDelayed"] == "2"
    memory.wait(3.01)
    assert [m["Body"] for m in memory.receive()] == ["its own"]
    memory.wait(7)
    assert [m["Body"] for m in memory.receive()] == ["queue's"]


def test_a_long_poll_ends(memory: SqsMemory) -> None:
    memory.create(ReceiveMessageWaitTimeSeconds="4")
    url = json.dumps({"QueueUrl": "http://x/sqs/1/q"}).encode()
    first = memory.begin_action("ReceiveMessage", url)
    memory.wait(3.9)
    assert not first.is_over
    memory.wait(0.2)
    assert taken(first) == {}
    second = memory.begin_action("ReceiveMessage", url)
    memory.wait(2)
    memory.send("now")
    assert [m["Body"] for m in taken(second)["Messages"]] == ["now"]
    third = memory.begin_action("ReceiveMessage", url)
    memory.core.hang_up(third)
    memory.send("later")
    assert [m["Body"] for m in memory.receive()] == ["later"]


def test_messages_expire(memory: SqsMemory) -> None:
    memory.create(MessageRetentionPeriod="60")
    memory.send("old")
    memory.wait(61)
    assert memory.receive() == []


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("text \u00fc \"'\n", "text \u00fc \"'\n"),
        ({"a": [1, 2.5, None]}, '{"a":[1,2.5,null]}'),
        (17, "17"),
        (None, "null"),
        ("", ""),
    ],
)
def test_jobs_of_native_producers(memory: SqsMemory, data: object, text: str) -> None:
    memory.queue("native.queue:1")
    memory.append(data, topic="native.queue:1", meta={"$sqs": 1}, tag="t")
    (message,) = memory.receive("native.queue:1", MessageAttributeNames=["All"])
    assert message["Body"] == text
    assert message["MD5OfBody"] == md5(text.encode()).hexdigest()
    memory.act("DeleteMessage", "native.queue:1", ReceiptHandle=handle_of(message))
    assert memory.state("native.queue:1")["acked"] == 1


@pytest.mark.parametrize(
    "meta",
    [
        {"$sqs": {"attributes": {"a": {"DataType": "Binary", "BinaryValue": "%"}}}},
        {"$sqs": {"attributes": {"a": {"DataType": "String"}}}},
        {"$sqs": {"attributes": {"a": 1}}},
        {"$sqs": {"trace": {"DataType": "String"}, "deduplication": ""}},
        {
            "$dead_letter_from": "x",
            "$dead_letter_src_seq": "\u00b2",
            "$dead_letter_deliveries": "-",
        },
        {"$dead_letter_from": "no such", "$dead_letter_src_seq": "9" * 40},
        ["$sqs"],
    ],
)
def test_any_meta_of_native_producers(memory: SqsMemory, meta: object) -> None:
    memory.create()
    memory.append("x", meta=meta)
    (message,) = memory.receive(MessageAttributeNames=["All"])
    assert message["Body"] == "x" and "MessageAttributes" not in message


def test_a_standby_answers_what_only_reads(memory: SqsMemory) -> None:
    memory.create()

    class Following:
        behind_ms = 5

        def refusal(self) -> NotWriter:
            return NotWriter.because("a standby", "http://writer")

    lifecycle = memory.core._service.lifecycle
    lifecycle.following = Following()  # type: ignore[assignment]
    assert len(memory.act("ListQueues")["QueueUrls"]) == 1
    assert memory.act("GetQueueAttributes", "q", AttributeNames=["All"])["Attributes"]
    for act in (lambda: memory.send("x"), memory.receive, memory.create):
        with pytest.raises(Refused, match="ServiceUnavailable"):
            act()
    lifecycle.following = None


def test_messages_for_native_workers(memory: SqsMemory) -> None:
    memory.create()
    memory.send("{}", MessageAttributes={"a": {"DataType": "String", "StringValue": "v"}})
    (job,) = claimed(memory.claim())
    assert job["data"] == "{}"
    expected = {"attributes": {"a": {"DataType": "String", "StringValue": "v"}}}
    assert job["meta"] == {"$sqs": expected}
    assert memory.receive() == []
    memory.settle("nack", job["$seq"])
    (message,) = memory.receive(MessageAttributeNames=["All"])
    assert message["MessageAttributes"] == expected["attributes"]


def test_dead_letters(memory: SqsMemory) -> None:
    memory.create("dead")
    arn = "arn:aws:sqs:eu-west-1:123456789012:dead"
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 2})
    memory.create(RedrivePolicy=policy)
    attributes = {"a": {"DataType": "String", "StringValue": "v"}}
    sent = memory.send("poison", MessageAttributes=attributes)
    for _ in range(2):
        assert memory.receive(VisibilityTimeout=1)
        memory.wait(1.01)
    assert memory.receive() == []
    (letter,) = memory.receive("dead", MessageAttributeNames=["All"])
    assert letter["MessageId"] == sent["MessageId"]
    assert letter["MessageAttributes"] == attributes
    assert letter["Attributes"]["ApproximateReceiveCount"] == "3"
    shown = memory.act("GetQueueAttributes", "q", AttributeNames=["RedrivePolicy"])["Attributes"]
    assert json.loads(shown["RedrivePolicy"])["maxReceiveCount"] == 2
    memory.act("SetQueueAttributes", "q", Attributes={"RedrivePolicy": ""})
    assert "Attributes" not in memory.act(
        "GetQueueAttributes", "q", AttributeNames=["RedrivePolicy"]
    )
    assert memory.call("GET", "topics/q")["config"]["dead_letter"] is None


def test_the_largest_message_survives_a_restart(memory: SqsMemory) -> None:
    """A text of quotes takes twice as much as JSON, more than a native record may have."""
    memory.create()
    memory.send('"' * (1 << 20))
    half = "\u00fc" * (1 << 18)
    memory.send(half, MessageAttributes={"a": {"DataType": "String", "StringValue": half[:-4]}})
    with pytest.raises(Refused, match="shorter"):
        memory.send("x" * (1 << 20) + "y")
    memory.core.restart(kill=True)
    first, second = memory.receive(MessageAttributeNames=["All"])
    assert first["Body"] == '"' * (1 << 20)
    assert second["MessageAttributes"]["a"]["StringValue"] == half[:-4]


def test_handles_survive_a_restart_and_fit_one_queue(memory: SqsMemory) -> None:
    memory.create()
    memory.create("other")
    memory.send("a")
    (message,) = memory.receive()
    handle = handle_of(message)
    with pytest.raises(Refused, match="ReceiptHandleIsInvalid"):
        memory.act("DeleteMessage", "other", ReceiptHandle=handle)
    memory.core.restart(kill=False)
    memory.act("DeleteMessage", "q", ReceiptHandle=handle)
    assert memory.state()["ready"] == memory.state()["in_flight"] == 0
    memory.act("DeleteQueue", "q")
    memory.create()
    with pytest.raises(Refused, match="ReceiptHandleIsInvalid"):
        memory.act("DeleteMessage", "q", ReceiptHandle=handle)
