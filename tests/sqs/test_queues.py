"""Queues of SQS as topics, and what is refused: in memory."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logqueue.model.config import SqsOptions, TopicOptions
from logqueue.server.sqs.door import ACTIONS
from logqueue.server.sqs.handles import Receipt, message_id, read_handle, write_handle
from tests.sqs.memory import URL, Refused, SqsMemory, taken


def config_of(memory: SqsMemory, queue: str = "q") -> dict[str, Any]:
    found: dict[str, Any] = memory.call("GET", f"topics/{queue}")["config"]
    return found


def test_attributes_are_fields_of_the_config(memory: SqsMemory) -> None:
    memory.act(
        "CreateQueue",
        QueueName="q",
        Attributes={
            "VisibilityTimeout": "7",
            "MessageRetentionPeriod": "61",
            "DelaySeconds": "3",
            "ReceiveMessageWaitTimeSeconds": "2",
            "MaximumMessageSize": "2048",
            "RedriveAllowPolicy": '{"redrivePermission":"denyAll"}',
            "FifoQueue": "false",
        },
        tags={"team": "a"},
    )
    config = config_of(memory)
    assert (config["type"], config["lease_ms"], config["ttl_ms"]) == ("queue", 7000, 61_000)
    kept = {name: config["sqs"][name] for name in ("delay_s", "wait_s", "message_bytes_max")}
    assert kept == {"delay_s": 3, "wait_s": 2, "message_bytes_max": 2048}
    memory.call("PATCH", "topics/q", {"lease_ms": 9999})
    shown = memory.act("GetQueueAttributes", "q", AttributeNames=["All"])["Attributes"]
    assert shown["VisibilityTimeout"] == "9" and shown["DelaySeconds"] == "3"
    assert json.loads(shown["RedriveAllowPolicy"]) == {"redrivePermission": "denyAll"}
    created = shown["CreatedTimestamp"]
    memory.wait(2)
    memory.act("TagQueue", "q", Tags={"b": "2"})
    memory.act("UntagQueue", "q", TagKeys=["team", "absent"])
    assert memory.act("ListQueueTags", "q")["Tags"] == {"b": "2"}
    memory.core.restart(kill=True)
    shown = memory.act("GetQueueAttributes", "q", AttributeNames=["All"])["Attributes"]
    assert shown["CreatedTimestamp"] == created < shown["LastModifiedTimestamp"]
    assert memory.act("ListQueueTags", "q")["Tags"] == {"b": "2"}


def test_other_topics_do_not_show_the_field(memory: SqsMemory) -> None:
    memory.queue("native")
    assert "sqs" not in config_of(memory, "native")
    without = TopicOptions(type="queue").resolved()
    assert without.version == msgspec.structs.replace(without, sqs=None).version
    assert without.version != msgspec.structs.replace(without, sqs=SqsOptions()).version
    differs = memory.call("POST", "topics/native/ensure", {"type": "queue", "sqs": {"delay_s": 1}})
    assert differs["differs"]["sqs"]["have"] is None


def test_the_version_of_a_config_without_it_is_what_it_was() -> None:
    assert TopicOptions().resolved().version == "cf8e29a4cd59bc15"


def test_queues_are_listed(memory: SqsMemory) -> None:
    for name in ("a1", "a2", "b1"):
        memory.create(name)
    memory.call("PUT", "topics/a-log", {})
    assert memory.act("ListQueues", QueueNamePrefix="a")["QueueUrls"] == [
        "http://logqueue.test/sqs/000000000000/a1",
        "http://logqueue.test/sqs/000000000000/a2",
    ]
    page = memory.act("ListQueues", MaxResults=2)
    assert len(page["QueueUrls"]) == 2
    rest = memory.act("ListQueues", MaxResults=2, NextToken=page["NextToken"])
    assert len(rest["QueueUrls"]) == 1 and "NextToken" not in rest
    with pytest.raises(Refused, match="NonExistentQueue"):
        memory.act("GetQueueUrl", QueueName="a-log")
    with pytest.raises(Refused, match="QueueAlreadyExists"):
        memory.act("CreateQueue", QueueName="a-log")


def test_purge_removes_everything(memory: SqsMemory) -> None:
    memory.create()
    for text in "abc":
        memory.send(text)
    memory.send("d", DelaySeconds=5)
    memory.receive(MaxNumberOfMessages=1)
    memory.act("PurgeQueue", "q")
    state = memory.state()
    assert (state["ready"], state["in_flight"], state["delayed"]) == (0, 0, 0)


def test_a_dead_letter_queue_that_allows_some(memory: SqsMemory) -> None:
    arn = "arn:aws:sqs:us-east-1:000000000000:"
    allow = {"redrivePermission": "byQueue", "sourceQueueArns": [arn + "friend"]}
    memory.create("dead", RedriveAllowPolicy=json.dumps(allow))
    policy = json.dumps({"deadLetterTargetArn": arn + "dead", "maxReceiveCount": "2"})
    memory.create("friend", RedrivePolicy=policy)
    with pytest.raises(Refused, match="does not allow"):
        memory.create("stranger", RedrivePolicy=policy)
    with pytest.raises(Refused, match="does not exist"):
        memory.create("x", RedrivePolicy=policy.replace(":dead", ":absent"))
    memory.act("StartMessageMoveTask", SourceArn=arn + "dead", DestinationArn=arn + "friend")
    (task,) = memory.act("ListMessageMoveTasks", SourceArn=arn + "dead")["Results"]
    assert task["Status"] == "COMPLETED" and task["DestinationArn"] == arn + "friend"
    with pytest.raises(Refused, match="dead-letter queue of another"):
        memory.act("StartMessageMoveTask", SourceArn=arn + "friend")


@pytest.mark.parametrize(
    ("attributes", "code"),
    [
        ({"DelaySeconds": "-1"}, "InvalidAttributeValue"),
        ({"DelaySeconds": "901"}, "InvalidAttributeValue"),
        ({"DelaySeconds": "\u0663"}, "InvalidAttributeValue"),
        ({"VisibilityTimeout": "43201"}, "InvalidAttributeValue"),
        ({"MessageRetentionPeriod": "59"}, "InvalidAttributeValue"),
        ({"MaximumMessageSize": "1048577"}, "InvalidAttributeValue"),
        ({"RedrivePolicy": "nonsense"}, "InvalidParameterValue"),
        ({"RedrivePolicy": "[]"}, "InvalidParameterValue"),
        ({"RedrivePolicy": '{"maxReceiveCount":1}'}, "InvalidParameterValue"),
        ({"RedrivePolicy": '{"deadLetterTargetArn":7}'}, "InvalidParameterValue"),
        ({"RedriveAllowPolicy": '{"redrivePermission":"byQueue"}'}, "InvalidParameterValue"),
        ({"FifoQueue": "true"}, "InvalidParameterValue"),
        ({"ContentBasedDeduplication": "true"}, "InvalidAttributeName"),
        ({"KmsMasterKeyId": "alias/aws/sqs"}, "UnsupportedOperation"),
        ({"QueueArn": "x"}, "InvalidAttributeName"),
        ({"Nonsense": ""}, "InvalidAttributeName"),
    ],
)
def test_attributes_that_are_refused(
    memory: SqsMemory, attributes: dict[str, str], code: str
) -> None:
    with pytest.raises(Refused) as refused:
        memory.create(**attributes)
    assert refused.value.code.endswith(code) and refused.value.status == 400


@pytest.mark.parametrize("name", ["", "a b", "a.b", "x" * 81, "\u00fc", "-x", "_x", "q.fifo"])
def test_names_that_are_refused(memory: SqsMemory, name: str) -> None:
    with pytest.raises(Refused):
        memory.create(name)


def bad_message(**members: Any) -> bytes:
    return json.dumps({"QueueUrl": URL + "q", "MessageBody": "x", **members}).encode()


@pytest.mark.parametrize(
    ("action", "body", "code"),
    [
        ("SendMessage", b"", "MalformedInput"),
        ("SendMessage", b"[]", "MalformedInput"),
        ("SendMessage", b"\xff", "MalformedInput"),
        ("SendMessage", b'{"a":' * 5000, "MalformedInput"),
        ("SendMessage", b"{}", "MissingParameter"),
        ("SendMessage", bad_message(MessageBody=""), "MissingParameter"),
        ("SendMessage", bad_message(MessageBody=1), "MalformedInput"),
        ("SendMessage", bad_message(MessageBody="\x1b"), "InvalidMessageContents"),
        ("SendMessage", bad_message(MessageBody="\uffff"), "InvalidMessageContents"),
        ("SendMessage", bad_message(QueueUrl=""), "InvalidAddress"),
        ("SendMessage", bad_message(QueueUrl=URL + "absent"), "NonExistentQueue"),
        ("SendMessage", bad_message(DelaySeconds=901), "InvalidParameterValue"),
        ("SendMessage", bad_message(DelaySeconds="1"), "MalformedInput"),
        ("SendMessage", bad_message(DelaySeconds=10**30), "InvalidParameterValue"),
        ("SendMessage", bad_message(MessageGroupId="a b"), "InvalidParameterValue"),
        ("ReceiveMessage", bad_message(MaxNumberOfMessages=11), "InvalidParameterValue"),
        ("ReceiveMessage", bad_message(MaxNumberOfMessages=0), "InvalidParameterValue"),
        ("ReceiveMessage", bad_message(WaitTimeSeconds=21), "InvalidParameterValue"),
        ("ReceiveMessage", bad_message(AttributeNames=["Nonsense"]), "InvalidAttributeName"),
        ("SendMessage", bad_message(QueueUrl=URL + "x" * 300_000), "NonExistentQueue"),
        ("DeleteMessage", bad_message(ReceiptHandle="A" * 40), "ReceiptHandleIsInvalid"),
        ("DeleteMessage", bad_message(ReceiptHandle="\u00fc" * 40), "ReceiptHandleIsInvalid"),
        ("ListQueues", b'{"NextToken":"nonsense"}', "InvalidParameterValue"),
        ("ListQueues", b'{"MaxResults":0}', "InvalidParameterValue"),
        ("CancelMessageMoveTask", b'{"TaskHandle":"x"}', "ResourceNotFoundException"),
        ("AddPermission", b"{}", "UnsupportedOperation"),
        ("Nonsense", b"{}", "InvalidAction"),
        ("TagQueue", bad_message(Tags={}), "MissingParameter"),
        ("UntagQueue", bad_message(TagKeys=[]), "MissingParameter"),
    ],
)
def test_requests_that_are_refused(memory: SqsMemory, action: str, body: bytes, code: str) -> None:
    memory.create()
    with pytest.raises(Refused) as refused:
        taken(memory.begin_action(action, body))
    assert refused.value.code.endswith(code) and refused.value.status == 400


@pytest.mark.parametrize(
    "attribute",
    [
        {"DataType": "String"},
        {"DataType": "String", "StringValue": ""},
        {"DataType": "String", "BinaryValue": "eA=="},
        {"DataType": "Number", "StringValue": "x"},
        {"DataType": "Binary", "BinaryValue": "%"},
        {"DataType": "Other", "StringValue": "x"},
        {"DataType": "String", "StringValue": "\x00"},
        {"DataType": "String", "StringValue": "x", "BinaryValue": "eA=="},
    ],
)
def test_message_attributes_that_are_refused(memory: SqsMemory, attribute: Any) -> None:
    memory.create()
    with pytest.raises(Refused, match="InvalidParameterValue"):
        memory.send("x", MessageAttributes={"a": attribute})


@pytest.mark.parametrize("name", ["", ".a", "a.", "a..b", "aws.x", "AMAZON.x", "a b", "x" * 257])
def test_names_of_message_attributes_that_are_refused(memory: SqsMemory, name: str) -> None:
    memory.create()
    with pytest.raises(Refused, match="InvalidParameterValue"):
        memory.send("x", MessageAttributes={name: {"DataType": "String", "StringValue": "x"}})


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=9,
)
MEMBERS = sorted(
    {name for row in ACTIONS.values() for name in row.body.type.__struct_encode_fields__}
)


@pytest.fixture(scope="module")
def shared() -> Any:
    server = SqsMemory()
    server.create()
    yield server
    server.close()


@given(
    action=st.sampled_from(sorted({*ACTIONS} - {"ReceiveMessage"})),
    members=st.dictionaries(st.sampled_from(MEMBERS), JSON_VALUES),
    has_queue=st.booleans(),
)
def test_no_body_makes_the_server_fail(
    shared: SqsMemory, action: str, members: dict[str, Any], has_queue: bool
) -> None:
    if has_queue:
        members["QueueUrl"] = URL + "q"
    try:
        shared.act(action, **members)
    except Refused as refused:
        assert 400 <= refused.status < 500


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_handles(instance: int, seq: int, lease: int) -> None:
    receipt = Receipt(instance, seq, lease)
    handle = write_handle("log", receipt)
    assert read_handle("log", handle) == receipt
    assert read_handle("another", handle) is None
    assert message_id("log-1", seq) == message_id("log-1", seq) != message_id("log-2", seq)
