"""boto3 itself: it checks digests, knows the exceptions, and has paginators and resources."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from logqueue.server.auth import signing_credentials
from tests.http.api import Api
from tests.http.process import ServerProcess
from tests.sqs.conftest import boto3_client

boto3 = pytest.importorskip("boto3")
ClientError = pytest.importorskip("botocore.exceptions").ClientError


def code_of(error: pytest.ExceptionInfo[Any]) -> str:
    found: str = error.value.response["Error"]["Code"]
    return found


def test_a_message_from_end_to_end(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
    attributes = {
        "text": {"DataType": "String", "StringValue": "grüße"},
        "number": {"DataType": "Number.int", "StringValue": "42"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\0\xff"},
    }
    trace = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988"}}
    sent = sqs.send_message(
        QueueUrl=url,
        MessageBody='{"a": "ü\U0001f600\\"\n"}',
        MessageAttributes=attributes,
        MessageSystemAttributes=trace,
    )
    assert sent["ResponseMetadata"]["RequestId"]
    (message,) = sqs.receive_message(
        QueueUrl=url, MessageSystemAttributeNames=["All"], MessageAttributeNames=["All"]
    )["Messages"]
    assert message["Body"] == '{"a": "ü\U0001f600\\"\n"}'
    assert message["MessageId"] == sent["MessageId"]
    assert message["MessageAttributes"] == attributes
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    assert message["Attributes"]["AWSTraceHeader"] == "Root=1-5759e988"
    sqs.change_message_visibility(
        QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0
    )
    (again,) = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["te.*", "num*"])["Messages"]
    assert again["ReceiptHandle"] != message["ReceiptHandle"]
    assert "MessageAttributes" not in again
    sqs.delete_message(QueueUrl=url, ReceiptHandle=again["ReceiptHandle"])
    counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessages"] == "0"
    assert counts["ApproximateNumberOfMessagesNotVisible"] == "0"
    sqs.delete_queue(QueueUrl=url)


def test_batches(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    entries = [{"Id": f"e{n}", "MessageBody": f"m{n}"} for n in range(10)]
    entries[3]["MessageBody"] = "not \x00 allowed"
    entries[4]["DelaySeconds"] = 901  # type: ignore[assignment]
    sent = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [one["Id"] for one in sent["Successful"]] == [f"e{n}" for n in (0, 1, 2, *range(5, 10))]
    assert [(one["Id"], one["Code"], one["SenderFault"]) for one in sent["Failed"]] == [
        ("e3", "InvalidMessageContents", True),
        ("e4", "InvalidParameterValue", True),
    ]
    found = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    assert [one["MessageId"] for one in found] == [one["MessageId"] for one in sent["Successful"]]
    handles = [{"Id": f"h{n}", "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(found)]
    changed = sqs.change_message_visibility_batch(
        QueueUrl=url, Entries=[{**one, "VisibilityTimeout": 100} for one in handles]
    )
    assert len(changed["Successful"]) == 8 and "Failed" not in changed
    handles[0]["ReceiptHandle"] = "nonsense"
    deleted = sqs.delete_message_batch(QueueUrl=url, Entries=handles)
    assert len(deleted["Successful"]) == 7
    assert [one["Code"] for one in deleted["Failed"]] == ["ReceiptHandleIsInvalid"]


def test_exceptions(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name, Attributes={"DelaySeconds": "5"})["QueueUrl"]
    sqs.create_queue(QueueName=name)
    with pytest.raises(sqs.exceptions.QueueNameExists):
        sqs.create_queue(QueueName=name, Attributes={"DelaySeconds": "6"})
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName=name + "-absent")
    with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid):
        sqs.delete_message(QueueUrl=url, ReceiptHandle="nonsense")
    with pytest.raises(sqs.exceptions.EmptyBatchRequest):
        sqs.send_message_batch(QueueUrl=url, Entries=[])
    entry = {"Id": "a", "MessageBody": "x"}
    with pytest.raises(sqs.exceptions.TooManyEntriesInBatchRequest):
        sqs.send_message_batch(QueueUrl=url, Entries=[{**entry, "Id": str(n)} for n in range(11)])
    with pytest.raises(sqs.exceptions.BatchEntryIdsNotDistinct):
        sqs.send_message_batch(QueueUrl=url, Entries=[entry, entry])
    with pytest.raises(sqs.exceptions.InvalidBatchEntryId):
        sqs.send_message_batch(QueueUrl=url, Entries=[{**entry, "Id": "a b"}])
    with pytest.raises(sqs.exceptions.BatchRequestTooLong):
        half = "x" * 600_000
        sqs.send_message_batch(
            QueueUrl=url, Entries=[{"Id": n, "MessageBody": half} for n in ("a", "b")]
        )
    with pytest.raises(sqs.exceptions.InvalidAttributeName):
        sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Nonsense"])
    with pytest.raises(sqs.exceptions.InvalidAttributeValue):
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "901"})
    with pytest.raises(sqs.exceptions.UnsupportedOperation):
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": "{}"})


def test_paginators_and_the_resource(sqs: Any, sqs_server: ServerProcess, name: str) -> None:
    for number in range(5):
        sqs.create_queue(QueueName=f"{name}-{number}", tags={"n": str(number)})
    pages = sqs.get_paginator("list_queues").paginate(
        QueueNamePrefix=name + "-", PaginationConfig={"PageSize": 2}
    )
    sizes = [len(page.get("QueueUrls", [])) for page in pages]
    assert sizes == [2, 2, 1]
    dead = sqs.get_queue_url(QueueName=f"{name}-0")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]
    policy = json.dumps({"deadLetterTargetArn": arn["QueueArn"], "maxReceiveCount": 3})
    for number in (1, 2, 3):
        url = sqs.get_queue_url(QueueName=f"{name}-{number}")["QueueUrl"]
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    sources = sqs.get_paginator("list_dead_letter_source_queues").paginate(
        QueueUrl=dead, PaginationConfig={"PageSize": 2}
    )
    assert [len(page["queueUrls"]) for page in sources] == [2, 1]
    resource = boto3.resource(
        "sqs",
        endpoint_url=f"http://{sqs_server.host}:{sqs_server.port}/sqs",
        region_name="us-east-1",
        aws_access_key_id="a",
        aws_secret_access_key="b",
    )
    queue = resource.get_queue_by_name(QueueName=f"{name}-1")
    queue.send_message(MessageBody="hello")
    (message,) = queue.receive_messages(WaitTimeSeconds=20)
    assert message.body == "hello"
    message.change_visibility(VisibilityTimeout=30)
    message.delete()
    assert [found.url for found in queue.dead_letter_source_queues.all()] == []
    assert sqs.list_queue_tags(QueueUrl=queue.url)["Tags"] == {"n": "1"}


def test_a_waiting_receive_gets_what_is_sent_meanwhile(sqs: Any, name: str) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sqs.receive_message, QueueUrl=url, WaitTimeSeconds=20)
        while not waiting.running():
            time.sleep(0.01)
        sqs.send_message(QueueUrl=url, MessageBody="now")
        assert [one["Body"] for one in waiting.result()["Messages"]] == ["now"]


def test_a_move_task(sqs: Any, name: str) -> None:
    dead = sqs.create_queue(QueueName=name + "-dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["All"])["Attributes"]["QueueArn"]
    policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "1"})
    url = sqs.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy})["QueueUrl"]
    sent = sqs.send_message(QueueUrl=url, MessageBody="poison")["MessageId"]
    sqs.receive_message(QueueUrl=url, VisibilityTimeout=0)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    (letter,) = sqs.receive_message(
        QueueUrl=dead, VisibilityTimeout=0, MessageSystemAttributeNames=["All"]
    )["Messages"]
    assert letter["MessageId"] == sent
    assert letter["Attributes"]["ApproximateReceiveCount"] == "2"
    assert letter["Attributes"]["DeadLetterQueueSourceArn"].endswith(":" + name)
    sqs.start_message_move_task(SourceArn=arn)
    deadline = time.monotonic() + 60
    while (found := sqs.list_message_move_tasks(SourceArn=arn)["Results"][0])[
        "Status"
    ] == "RUNNING":
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert found["Status"] == "COMPLETED" and found["ApproximateNumberOfMessagesMoved"] == 1
    (message,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert message["Body"] == "poison"
    with pytest.raises(sqs.exceptions.ResourceNotFoundException):
        sqs.start_message_move_task(SourceArn=arn + "-absent")


def test_signatures(tmp_path: Any) -> None:
    keys = "all-of-it,reader:read:mine-,mine:rw:mine-"
    server = ServerProcess(
        tmp_path / "data", flags=["--sqs"], settings={"API_KEYS": keys}, probe_key="all-of-it"
    ).start()
    try:
        admin = boto3_client(server, *signing_credentials("all-of-it"))
        url = admin.create_queue(QueueName="mine-1")["QueueUrl"]
        admin.create_queue(QueueName="other")
        mine = boto3_client(server, *signing_credentials("mine"))
        mine.send_message(QueueUrl=url, MessageBody="x" * 300_000)
        assert len(mine.list_queues()["QueueUrls"]) == 1
        reader = boto3_client(server, *signing_credentials("reader"))
        refused: list[tuple[Any, Any, str]] = [
            (reader, lambda c: c.send_message(QueueUrl=url, MessageBody="x"), "AccessDenied"),
            (mine, lambda c: c.get_queue_url(QueueName="other"), "AccessDenied"),
            (mine, lambda c: c.create_queue(QueueName="mine-2"), "AccessDenied"),
            (
                boto3_client(server, signing_credentials("mine")[0], "wrong"),
                lambda c: c.list_queues(),
                "SignatureDoesNotMatch",
            ),
            (boto3_client(server), lambda c: c.list_queues(), "InvalidClientTokenId"),
        ]
        for client, call, code in refused:
            with pytest.raises(ClientError) as error:
                call(client)
            assert code_of(error) == code
            assert error.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
        with Api(server.base_url, key="mine") as api:
            assert len(api.claim("mine-1").json()["claimed"]) == 1
    finally:
        server.stop()


def test_each_action_is_a_route_in_metrics(sqs: Any, sqs_server: ServerProcess, name: str) -> None:
    sqs.create_queue(QueueName=name)
    with Api(sqs_server.base_url) as api:
        text = api.send("GET", "/v0/metrics").text
    assert 'route="/sqs CreateQueue"' in text and 'route="unknown"' not in text
