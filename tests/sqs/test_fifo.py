"""FIFO queues, and groups of standard queues: in memory, under a manual clock."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.sqs.memory import URL, Refused, SqsMemory, taken
from tests.sqs.test_messages import handle_of

Q = "q.fifo"


@pytest.fixture
def fifo(memory: SqsMemory) -> SqsMemory:
    """A server in memory with a FIFO queue."""
    memory.create(Q, FifoQueue="true", ContentBasedDeduplication="true", VisibilityTimeout="5")
    return memory


def send(server: SqsMemory, body: str, group: str = "g", **members: Any) -> dict[str, Any]:
    return server.send(body, Q, MessageGroupId=group, **members)


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["Body"] for message in messages]


def test_a_group_goes_one_at_a_time_in_order(fifo: SqsMemory) -> None:
    for body, group in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a")):
        send(fifo, body, group)
    first = fifo.receive(Q)
    assert bodies(first) == ["a1", "b1"]
    assert fifo.receive(Q) == []
    assert [m["Attributes"]["MessageGroupId"] for m in first] == ["a", "b"]
    numbers = [int(m["Attributes"]["SequenceNumber"]) for m in first]
    assert numbers == sorted(numbers) and len(first[0]["Attributes"]["SequenceNumber"]) == 20
    # One that returns holds its group back.
    fifo.wait(5.01)
    again = fifo.receive(Q)
    assert bodies(again) == ["a1", "b1"]
    with pytest.raises(Refused, match="expired"):
        fifo.act("DeleteMessage", Q, ReceiptHandle=handle_of(first[0]))
    fifo.act("DeleteMessage", Q, ReceiptHandle=handle_of(again[0]))
    fifo.act("DeleteMessage", Q, ReceiptHandle=handle_of(again[0]))
    assert bodies(fifo.receive(Q)) == ["a2"]


def test_what_is_sent_twice_is_one_message(fifo: SqsMemory) -> None:
    first = send(fifo, "x")
    assert send(fifo, "x", "other")["MessageId"] == first["MessageId"]
    named = send(fifo, "x", MessageDeduplicationId="n")
    again = send(fifo, "y", MessageDeduplicationId="n")
    assert again["MessageId"] == named["MessageId"] != first["MessageId"]
    assert again["SequenceNumber"] == named["SequenceNumber"] > first["SequenceNumber"]
    (message,) = fifo.receive(Q)
    fifo.act("DeleteMessage", Q, ReceiptHandle=handle_of(message))
    # Also after it was deleted, and after a restart, for five minutes.
    assert send(fifo, "x")["MessageId"] == first["MessageId"]
    fifo.core.restart(kill=True)
    assert send(fifo, "x")["MessageId"] == first["MessageId"]
    (message,) = fifo.receive(Q)
    assert message["Attributes"]["MessageDeduplicationId"] == "n"
    fifo.wait(301)
    assert send(fifo, "x")["MessageId"] != first["MessageId"]


def test_deduplication_within_groups(memory: SqsMemory) -> None:
    memory.create(Q, FifoQueue="true", DeduplicationScope="messageGroup")
    for group in ("a", "b", "a"):
        send(memory, group, group, MessageDeduplicationId="same")
    assert bodies(memory.receive(Q)) == ["a", "b"]


def test_a_batch_keeps_its_order(fifo: SqsMemory) -> None:
    entries = [
        {"Id": str(n), "MessageBody": body, "MessageGroupId": group}
        for n, (body, group) in enumerate((("1", "a"), ("2", "b"), ("1", "a"), ("3", "a")))
    ]
    entries.append({"Id": "bad", "MessageBody": "no group"})
    sent = fifo.act("SendMessageBatch", Q, Entries=entries)
    assert [one["Id"] for one in sent["Successful"]] == ["0", "1", "2", "3"]
    numbers = [int(one["SequenceNumber"]) for one in sent["Successful"]]
    assert numbers == [1, 2, 1, 3]
    assert [(one["Id"], one["Code"]) for one in sent["Failed"]] == [("bad", "MissingParameter")]
    assert bodies(fifo.receive(Q)) == ["1", "2"]


def test_a_receive_is_asked_for_again(fifo: SqsMemory) -> None:
    send(fifo, "a", MessageAttributes={"n": {"DataType": "Number", "StringValue": "1"}})
    ask = {"ReceiveRequestAttemptId": "attempt-1", "MessageAttributeNames": ["All"]}
    first = fifo.receive(Q, **ask)
    fifo.wait(4)
    again = fifo.receive(Q, **ask)
    assert again == first and bodies(first) == ["a"]
    fifo.wait(4)
    assert fifo.receive(Q) == []
    fifo.act("DeleteMessage", Q, ReceiptHandle=handle_of(first[0]))
    assert fifo.receive(Q, **ask) == []
    with pytest.raises(Refused, match="InvalidParameterValue"):
        fifo.receive(Q, ReceiveRequestAttemptId="a b")


def test_dead_letters_free_their_group(fifo: SqsMemory) -> None:
    fifo.create("dead.fifo", FifoQueue="true")
    fifo.create("dead")
    arn = "arn:aws:sqs:us-east-1:000000000000:dead"
    policy = {"deadLetterTargetArn": arn + ".fifo", "maxReceiveCount": 1}
    fifo.act("SetQueueAttributes", Q, Attributes={"RedrivePolicy": json.dumps(policy)})
    send(fifo, "poison")
    send(fifo, "next")
    assert bodies(fifo.receive(Q)) == ["poison"]
    fifo.wait(5.01)
    assert bodies(fifo.receive(Q)) == ["next"]
    (letter,) = fifo.receive("dead.fifo")
    assert letter["Attributes"]["MessageGroupId"] == "g"
    for queue, target in ((Q, arn), ("dead", arn + ".fifo")):
        policy = {"deadLetterTargetArn": target, "maxReceiveCount": 1}
        with pytest.raises(Refused, match="must be one, too"):
            fifo.act("SetQueueAttributes", queue, Attributes={"RedrivePolicy": json.dumps(policy)})


def test_attributes(fifo: SqsMemory) -> None:
    shown = fifo.act("GetQueueAttributes", Q, AttributeNames=["All"])["Attributes"]
    assert {name: shown[name] for name in sorted(shown) if "Fifo" in name or "Dedup" in name} == {
        "ContentBasedDeduplication": "true",
        "DeduplicationScope": "queue",
        "FifoQueue": "true",
        "FifoThroughputLimit": "perQueue",
    }
    fifo.create(Q, FifoQueue="true")
    with pytest.raises(Refused, match="QueueAlreadyExists"):
        fifo.create(Q, FifoQueue="true", ContentBasedDeduplication="false")
    with pytest.raises(Refused, match="InvalidAttributeName"):
        fifo.act("SetQueueAttributes", Q, Attributes={"FifoQueue": "true"})


@pytest.mark.parametrize(
    "members",
    [
        {},
        {"MessageGroupId": "a b"},
        {"MessageGroupId": "g", "DelaySeconds": 1},
        {"MessageGroupId": "g", "MessageDeduplicationId": "x" * 129},
        {"MessageGroupId": "g", "MessageDeduplicationId": ""},
    ],
)
def test_messages_that_are_refused(fifo: SqsMemory, members: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        fifo.send("x", Q, **members)
    assert refused.value.status == 400


def test_a_standard_queue_is_fair(memory: SqsMemory) -> None:
    memory.create()
    for number in range(20):
        memory.send(f"noisy {number}", MessageGroupId="noisy")
    memory.send("quiet", MessageGroupId="quiet")
    found = memory.receive(MaxNumberOfMessages=2)
    assert sorted(bodies(found)) == ["noisy 0", "quiet"]
    groups = {m["Attributes"]["MessageGroupId"] for m in found}
    assert groups == {"noisy", "quiet"} and "SequenceNumber" not in found[0]["Attributes"]
    with pytest.raises(Refused, match="queue type"):
        memory.send("x", MessageDeduplicationId="d")


def test_a_waiting_receive_gets_the_next_of_a_group(fifo: SqsMemory) -> None:
    for body in "abc":
        send(fifo, body)
    ask = json.dumps({"QueueUrl": URL + Q, "WaitTimeSeconds": 20}).encode()
    (message,) = fifo.receive(Q)
    waiting = fifo.begin_action("ReceiveMessage", ask)
    assert not waiting.is_over
    fifo.act("DeleteMessage", Q, ReceiptHandle=handle_of(message))
    assert bodies(taken(waiting)["Messages"]) == ["b"]
    waiting = fifo.begin_action("ReceiveMessage", ask)
    fifo.wait(5.1)
    assert bodies(taken(waiting)["Messages"]) == ["b"]
    shown = fifo.act("GetQueueAttributes", Q, AttributeNames=["All"])["Attributes"]
    counts = [shown["ApproximateNumberOfMessages" + end] for end in ("", "NotVisible")]
    assert counts == ["1", "1"]
