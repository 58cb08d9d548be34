"""Which hosts and origins are accepted."""

from __future__ import annotations

import pytest

from logqueue.errors import Forbidden
from logqueue.server.hosts import HostPolicy


def policy(
    *allowed: str, has_keys: bool = False, is_loopback: bool = True, bound: str = "127.0.0.1"
) -> HostPolicy:
    """That of a server without keys on this machine, unless told otherwise."""
    return HostPolicy(has_keys=has_keys, is_loopback=is_loopback, bound=bound, allowed=allowed)


def passes(rules: HostPolicy, host: str | None, **fields: str) -> bool:
    """Whether a request passes; headers by name, with _ for -."""
    sent = {name.replace("_", "-").encode(): text.encode() for name, text in fields.items()}
    try:
        rules.require(None if host is None else host.encode("latin-1"), sent)
    except Forbidden as refusal:
        assert refusal.message.isascii() and refusal.message.isprintable()
        return False
    return True


LOCAL = [
    "localhost", "localhost:4000", "LOCALHOST:1", "localhost.", "localhost.:80", "api.localhost",
    "127.0.0.1", "127.0.0.1:65535", "127.8.9.1", "[::1]", "[::1]:4000", "[0:0:0:0:0:0:0:1]:4",
    "[::ffff:127.0.0.1]:4000",
]  # fmt: skip

FOREIGN = [
    "", " ", "evil.example", "evil.example:4000", "127.0.0.1.evil.example",
    "localhost.evil.example",
    "evillocalhost", "0.0.0.0:4000", "[::]:4000", "10.0.0.1", "[fe80::1]", "[::1%25lo]", "127.1",
    "2130706433", "0x7f.0.0.1", "127.0.0.1:x", "127.0.0.1:123456", "[::1", "::1", "localhost:80:80",
    "localhost/", "me@localhost", "localh\xf6st", "localhost\x00", "xn--localhost",
    "localhost,evil",
    ".", "..", "localhost..",
]  # fmt: skip


@pytest.mark.parametrize("host", LOCAL)
def test_this_machine(host: str) -> None:
    assert passes(policy(), host)


@pytest.mark.parametrize("host", FOREIGN)
def test_other_names(host: str) -> None:
    assert not passes(policy(), host)
    assert passes(policy(has_keys=True), host)
    assert passes(policy(is_loopback=False, bound="0.0.0.0"), host)


def test_http_1_0_names_no_host() -> None:
    assert passes(policy(), None)
    assert not passes(policy(), None, origin="http://localhost")


def test_the_address_listened_on() -> None:
    assert passes(policy(bound="::1"), "[::1]:4000")
    assert passes(policy(bound="127.0.0.9"), "127.0.0.9")


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:4000", "http://localhost:4000"),
        ("localhost:4000", "HTTP://LocalHost.:4000"),
        ("localhost", "http://localhost"),
        ("localhost:80", "http://localhost"),
        ("localhost", "https://localhost:443"),
        ("[::1]:4000", "http://[::1]:4000"),
    ],
)
def test_pages_of_the_server_itself(host: str, origin: str) -> None:
    assert passes(policy(), host, origin=origin)
    assert passes(policy(), host, origin=origin, sec_fetch_site="cross-site")


@pytest.mark.parametrize(
    "origin",
    [
        "null", "", "http://evil.example", "http://localhost", "http://localhost:3000",
        "http://127.0.0.1:4000", "http://localhost:4000.evil.example", "localhost:4000",
        "file://", "chrome-extension://localhost:4000", "http://localhost:4000/",
        "http://localhost:4000, http://evil.example", "http://me@localhost:4000",
    ],
)  # fmt: skip
def test_pages_of_others(origin: str) -> None:
    for rules in (policy(), policy(is_loopback=False, bound="10.0.0.1")):
        assert not passes(rules, "localhost:4000", origin=origin)
        assert not passes(rules, "localhost:4000", origin=origin, sec_fetch_site="same-origin")
    assert passes(policy(has_keys=True), "localhost:4000", origin=origin)


@pytest.mark.parametrize(
    ("site", "good"),
    [
        ("same-origin", True),
        ("none", True),
        ("cross-site", False),
        ("same-site", False),
        ("x", False),
    ],
)
def test_where_a_browser_says_that_a_request_is_from(site: str, good: bool) -> None:
    assert passes(policy(), "localhost", sec_fetch_site=site) == good


def test_further_hosts() -> None:
    for rules in (
        policy("queue.internal", "dash.example:8443"),
        policy("queue.internal", "dash.example:8443", has_keys=True, is_loopback=False),
    ):
        assert passes(rules, "Queue.Internal.:7")
        assert passes(rules, "localhost")
        assert passes(rules, "dash.example:8443")
        assert not passes(rules, "dash.example")
        assert not passes(rules, "evil.example")
        assert passes(rules, "localhost", origin="https://queue.internal")
        assert passes(rules, "localhost", origin="https://dash.example:8443")
        assert not passes(rules, "localhost", origin="https://dash.example")
        assert not passes(rules, "localhost", origin="https://evil.example")


def test_links_to_pages_work_from_everywhere() -> None:
    rules = policy()
    link = {
        b"sec-fetch-site": b"cross-site",
        b"sec-fetch-mode": b"navigate",
        b"sec-fetch-dest": b"document",
    }
    rules.require(b"localhost", link, is_page=True)
    for fields, host, is_page in (
        (link, b"localhost", False),
        (link, b"evil.example", True),
        ({**link, b"origin": b"http://evil.example"}, b"localhost", True),
        ({**link, b"sec-fetch-dest": b"iframe"}, b"localhost", True),
        ({**link, b"sec-fetch-mode": b"no-cors"}, b"localhost", True),
    ):
        with pytest.raises(Forbidden):
            rules.require(host, fields, is_page=is_page)
