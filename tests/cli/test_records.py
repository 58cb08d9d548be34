"""`append`, `read`, `tail`, `watch`: lines in, lines out."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

import pytest

from logqueue.client import Client, NewRecord
from tests.cli.conftest import Cli, Shell, finish


def stored(client: Client, topic: str) -> list[object]:
    """The payloads of a topic."""
    return [record.data for record in client.diff(topic).records]


def test_json_lines_are_stored_as_written(client: Client, topic: str, cli: Cli) -> None:
    lines = b'\xef\xbb\xbf{"a": 1.10}\n\n  "caf\xc3\xa9" \r\n12345678901234567890\n[1, {"b": null}]'
    ended = cli("append", topic, "-", "--create", "--json", stdin=lines)
    assert ended.status == 0 and ended.err == ""
    assert ended.json["count"] == 4 and ended.json["created"] is True
    assert stored(client, topic) == [{"a": 1.1}, "café", 12345678901234567890, [1, {"b": None}]]
    assert '{"a":1.10}' in cli("read", topic).out or '"a":1.1' in cli("read", topic).out


def test_csv_rows_become_objects_of_texts(
    client: Client, topic: str, cli: Cli, tmp_path: Path
) -> None:
    path = tmp_path / "orders.CSV"
    path.write_bytes(b'name,note\r\nann,"two\r\nlines"\r\n\r\nbob,"a ""b"""\r\n')
    assert cli("append", topic, str(path), "--create", "--tag", "import").status == 0
    assert stored(client, topic) == [
        {"name": "ann", "note": "two\r\nlines"},
        {"name": "bob", "note": 'a "b"'},
    ]
    assert {record.tag for record in client.diff(topic).records} == {"import"}


def test_plain_lines_become_texts(client: Client, topic: str, cli: Cli) -> None:
    assert (
        cli("append", topic, "-", "--create", "--format", "text", stdin=b"a b\n\n{\n").status == 0
    )
    assert stored(client, topic) == ["a b", "", "{"]


def test_whole_records_travel_from_topic_to_topic(client: Client, topic: str, cli: Cli) -> None:
    client.append(
        topic, [NewRecord(1, tag="t", meta={"m": 1}, node="n"), NewRecord(None)], create=True
    )
    copied = f"{topic}.copy"
    printed = cli("read", topic, "--json")
    assert printed.lines[1].keys() == {"$seq", "$ts", "data"}
    ended = cli("append", copied, "-", "--create", "--records", stdin=printed.out.encode())
    assert ended.status == 0
    first, second = client.diff(copied).records
    assert (first.data, first.tag, first.meta, first.node) == (1, "t", {"m": 1}, "n")
    assert (second.data, second.tag) == (None, None)


@pytest.mark.parametrize(
    ("line", "flags", "why"),
    [
        (b'{"a": 1', (), "invalid JSON: "),
        (b'1},{"data":2', (), "invalid JSON: "),
        (b'"\xff"', (), "not UTF-8"),
        (b"a,b,c", ("--format", "csv"), "3 cells, but the first line has 1"),
        (b'{"tag": "t"}', ("--records",), 'invalid record: "data" is missing'),
        (b'{"data": 1, "tag": 7}', ("--records",), "invalid record: "),
        (b"[1]", ("--records",), "invalid record: "),
    ],
)
def test_a_line_at_fault_is_named_and_what_is_before_it_stands(
    line: bytes, flags: tuple[str, ...], why: str, client: Client, topic: str, cli: Cli
) -> None:
    good = b'{"data": 1}\n'
    ended = cli(
        "append",
        topic,
        "--create",
        "-",
        "--chunk",
        "1",
        *flags,
        stdin=good * 3 + line + b"\n" + good,
    )
    assert ended.status == 1 and ended.out == ""
    (said,) = ended.err.splitlines()
    count = 2 if "csv" in flags else 3
    assert f"stdin, line 4: {why}" in said or why in said
    assert "line 4" in said and f"{count} records before it are stored" in said
    assert client.topic(topic).count == count


def test_nothing_in_the_input_is_status_3(topic: str, cli: Cli) -> None:
    ended = cli("append", topic, "-", "--create", stdin=b"\n \n")
    assert ended.status == 3 and "nothing was sent" in ended.err


@pytest.mark.parametrize("data", ["NaN", "[Infinity]", '{"a": -Infinity}'])
def test_numbers_that_json_does_not_have_are_refused(topic: str, cli: Cli, data: str) -> None:
    ended = cli("append", topic, "--data", data, "--create")
    assert ended.status == 1 and "--data, line 1: invalid JSON" in ended.err


def test_unknown_fields_of_whole_records_are_refused(topic: str, cli: Cli) -> None:
    line = b'{"data": 1, "$seq": 7, "delay": 5}\n'
    ended = cli("append", topic, "-", "--records", "--create", stdin=line)
    assert ended.status == 1 and "line 1: unknown field 'delay': use data, node, " in ended.err


def test_a_mistyped_topic_does_not_become_a_log(topic: str, cli: Cli) -> None:
    ended = cli("append", topic, "--data", "1")
    assert ended.status == 3 and "--create" in ended.err
    assert cli("topics", "--prefix", topic).status == 3


def test_an_append_with_a_key_is_stored_once(client: Client, topic: str, cli: Cli) -> None:
    for _ in range(2):
        ended = cli(
            "append",
            topic,
            "--create",
            "-",
            "--key",
            "k",
            "--chunk",
            "2",
            "--json",
            stdin=b"1\n2\n3\n",
        )
        assert ended.status == 0
    assert ended.json["deduped"] is True
    assert stored(client, topic) == [1, 2, 3]


def test_a_missing_file_is_one_line(topic: str, cli: Cli) -> None:
    ended = cli("append", topic, "nowhere.jsonl", "--create")
    assert ended.status == 1
    assert ended.err == "logqueue append: nowhere.jsonl: No such file or directory\n"


def test_read_shows_lines_for_people_and_for_programs(client: Client, topic: str, cli: Cli) -> None:
    client.append(topic, [NewRecord({"n": 1}, tag="odd"), {"n": 2}, {"n": 3}], create=True)
    shown = cli("read", topic).out.splitlines()
    assert len(shown) == 3 and shown[0].endswith('[odd]  {"n":1}')
    assert cli("read", topic, "--after", "1", "--limit", "1", "--data").out == '{"n":2}\n'
    behind = cli("read", topic, "--after", "3")
    assert behind.status == 3 and "after seq 3" in behind.err


def test_lost_records_are_told_of(client: Client, topic: str, cli: Cli) -> None:
    client.put_topic(topic, cap_records=1)
    client.append(topic, [1, 2, 3], create=True)
    shown = cli("read", topic, "--data")
    assert (shown.status, shown.out) == (0, "3\n")
    assert shown.err == "1 to 2 are gone (cap)\n"
    assert [("gap_from" in line) for line in cli("read", topic, "--json").lines] == [True, False]


def test_tail_finds_the_last_ones_however_many_are_deleted(
    client: Client, topic: str, cli: Cli
) -> None:
    client.append(
        topic, [NewRecord(n, tag="even" if n % 2 else "odd") for n in range(1, 101)], create=True
    )
    client.append(topic, [NewRecord(n, tag="late") for n in range(101, 201)], create=True)
    client.delete_records(topic, match="late")
    assert cli("tail", topic, "-n", "2", "--data").out == "99\n100\n"
    assert cli("tail", topic, "-n", "1000", "--data").out.count("\n") == 100
    client.delete_records(topic, before_seq=1000)
    assert cli("tail", topic).status == 3


def lines_of(process: subprocess.Popen[bytes], count: int) -> list[bytes]:
    """The next lines that a running command prints."""
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def test_tail_follows(shell: Shell, client: Client, topic: str) -> None:
    client.append(topic, [1, 2, 3], create=True)
    process = shell.start("tail", "-f", "-n", "2", topic, "--data")
    assert lines_of(process, 2) == [b"2\n", b"3\n"]
    client.append(topic, [4], create=True)
    assert lines_of(process, 1) == [b"4\n"]
    process.send_signal(signal.SIGINT)
    assert finish(process).status == 130


def test_watch_names_topics_and_ends_with_the_last_of_them(
    shell: Shell, client: Client, topic: str
) -> None:
    one, other = f"{topic}.a", f"{topic}.b"
    client.append(one, [1], create=True)
    client.append(other, [2], create=True)
    process = shell.start("watch", one, other, one, "--from-start", "--json")
    seen = [json.loads(line) for line in lines_of(process, 2)]
    assert {(line["topic"], line["data"]) for line in seen} == {(one, 1), (other, 2)}
    client.drop_topic(one)
    assert json.loads(lines_of(process, 1)[0]) == {"topic": one, "deleted": True}
    client.drop_topic(other)
    ended = finish(process)
    assert ended.status == 0 and ended.lines == [{"topic": other, "deleted": True}]
