"""Key lists, scopes, prefixes and credentials, as tables."""

from __future__ import annotations

import pytest

from logqueue.model.scopes import ALL_SCOPES, Scope
from logqueue.server.auth import (
    Key,
    KeyListError,
    KeyRing,
    bearer,
    parse_keys,
    query_token,
)

R, W, D, A = Scope.READ, Scope.WRITE, Scope.DELETE, Scope.ADMIN


@pytest.mark.parametrize(
    ("entry", "scopes", "prefixes"),
    [
        ("k1", ALL_SCOPES, ()),
        ("  k1  ", ALL_SCOPES, ()),
        ("k1:", ALL_SCOPES, ()),
        ("k1::", ALL_SCOPES, ()),
        ("k1: : ", ALL_SCOPES, ()),
        ("k1:read", R, ()),
        ("k1:r", R, ()),
        ("k1:WRITE", W, ()),
        ("k1:w", W, ()),
        ("k1:rw", R | W, ()),
        ("k1:RW", R | W, ()),
        ("k1:delete", D, ()),
        ("k1:del", D, ()),
        ("k1:d", D, ()),
        ("k1:admin", A, ()),
        ("k1:a", A, ()),
        ("k1:read+write", R | W, ()),
        ("k1: read + Del ", R | D, ()),
        ("k1:r+r", R, ()),
        ("k1:r+w+d+a", ALL_SCOPES, ()),
        ("k1::tenant-", ALL_SCOPES, ("tenant-",)),
        ("k1:read:tenant-a|shared.", R, ("tenant-a", "shared.")),
        ("k1:read+write:tenant-a:|shared:", R | W, ("tenant-a:", "shared:")),
        ("k1:read: a | | b ", R, ("a", "b")),
        ("k1:read:a|", R, ("a",)),
    ],
)
def test_an_entry_gives_a_key(entry: str, scopes: Scope, prefixes: tuple[str, ...]) -> None:
    (key,) = parse_keys(entry).keys
    assert (key.scopes, key.prefixes) == (scopes, prefixes)
    assert parse_keys(entry).authenticate("k1") == key


@pytest.mark.parametrize(
    ("text", "position"),
    [
        (":read", 1),
        ("k1, :read", 2),
        ("k1,,  , :read", 4),
        (":", 1),
        ("k1:+", 1),
        ("k1:read+", 1),
        ("k1:+read", 1),
        ("k1:read++write", 1),
        ("k1:reed", 1),
        ("k1:read write", 1),
        ("k1:read|write", 1),
        ("k1:all", 1),
        ("good:read,hunter2-secret:nope:p", 2),
        ("k1:read:|", 1),
        ("k1:read: | | ", 1),
    ],
)
def test_a_bad_entry_is_named_by_position_and_never_printed(text: str, position: int) -> None:
    with pytest.raises(KeyListError) as caught:
        parse_keys(text)
    assert f"entry {position} of the key list" in str(caught.value)
    for part in ("k1", "good", "hunter2", "nope", "reed"):
        assert part not in str(caught.value)


def test_two_entries_with_one_secret_are_refused() -> None:
    with pytest.raises(KeyListError, match="entries 1 and 3 "):
        parse_keys("twin:read,,twin:write")


@pytest.mark.parametrize("text", ["", "  ", ",", " , ,"])
def test_no_entry_gives_an_empty_ring_which_is_false(text: str) -> None:
    ring = parse_keys(text)
    assert not ring
    assert ring == KeyRing()
    assert ring.authenticate("anything") is None


def test_only_an_issued_secret_authenticates() -> None:
    ring = parse_keys("alpha:read,beta:write,gamma")
    assert ring
    alpha, beta, gamma = ring.keys
    assert ring.authenticate("alpha") is alpha
    assert ring.authenticate("beta") is beta
    assert ring.authenticate("gamma") is gamma
    for wrong in (None, "", "alph", "alphaa", "ALPHA", "alpha:read", " alpha"):
        assert ring.authenticate(wrong) is None


def test_every_key_is_compared_whichever_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    ring = parse_keys("alpha,beta,gamma")
    compared: list[bytes] = []

    def compare(ours: bytes, theirs: bytes) -> bool:
        compared.append(ours)
        return ours == theirs

    monkeypatch.setattr("logqueue.server.auth.hmac.compare_digest", compare)
    for secret in ("alpha", "gamma", "unknown"):
        compared.clear()
        ring.authenticate(secret)
        assert compared == [key.digest for key in ring.keys]


def test_neither_secret_nor_digest_shows_in_a_key() -> None:
    ring = parse_keys("open-sesame:read")
    (key,) = ring.keys
    assert len(key.id) == 8
    assert "open-sesame" not in repr(ring)
    assert key.digest.hex() not in repr(ring)
    assert repr(key.digest) not in repr(ring)


def test_a_secret_of_any_bytes_meets_itself() -> None:
    from_environment = b"p\xc3\xa4ss\xff".decode("utf-8", "surrogateescape")
    ring = parse_keys(from_environment)
    assert ring.authenticate(bearer(b"Bearer p\xc3\xa4ss\xff")) is ring.keys[0]
    assert ring.authenticate(query_token(b"token=p%C3%A4ss%FF")) is ring.keys[0]


@pytest.mark.parametrize(
    ("prefixes", "name", "allowed"),
    [
        ((), "anything", True),
        ((), "", True),
        (("tenant-",), "tenant-x", True),
        (("tenant-",), "tenant-", True),
        (("tenant-",), "tenant", False),
        (("tenant-",), "Tenant-x", False),
        (("tenant-",), "x-tenant-", False),
        (("a:", "b"), "b", True),
        (("a:", "b"), "a:1", True),
        (("a:", "b"), "a1", False),
        (("jobs->",), "jobs->audit", True),
    ],
)
def test_prefixes(prefixes: tuple[str, ...], name: str, allowed: bool) -> None:
    assert Key(id="k", prefixes=prefixes).allows(name) is allowed


@pytest.mark.parametrize(
    ("held", "needed", "enough"),
    [
        (R, R, True),
        (R, W, False),
        (R | W, R | W, True),
        (R, R | W, False),
        (A, R, False),
        (A, W, False),
        (A, D, False),
        (R | W | D, A, False),
        (R, Scope(0), True),
        (ALL_SCOPES, ALL_SCOPES, True),
    ],
)
def test_no_scope_includes_another(held: Scope, needed: Scope, enough: bool) -> None:
    assert Key(id="k", scopes=held).has(needed) is enough


@pytest.mark.parametrize(
    ("header", "secret"),
    [
        (b"Bearer k1", "k1"),
        (b"Bearer   k1  ", "k1"),
        (b"Bearer \tk1\t", "k1"),
        (b"Bearer k 1", "k 1"),
        (None, None),
        (b"", None),
        (b"Bearer", None),
        (b"Bearer ", None),
        (b"Bearer    ", None),
        (b"Bearer\tk1", None),
        (b"bearer k1", None),
        (b"BEARER k1", None),
        (b" Bearer k1", None),
        (b"Basic azE6", None),
        (b"k1", None),
    ],
)
def test_bearer(header: bytes | None, secret: str | None) -> None:
    assert bearer(header) == secret


@pytest.mark.parametrize(
    ("query", "secret"),
    [
        (b"token=k1", "k1"),
        (b"node=a&token=k1&max=3", "k1"),
        (b"token=first&token=second", "first"),
        (b"token=&token=second", None),
        (b"token", None),
        (b"", None),
        (b"tokens=k1", None),
        (b"Token=k1", None),
        (b"token=a+b", "a b"),
        (b"token=a%2Bb%20c", "a+b c"),
        (b"%74oken=k1", "k1"),
        (b"token=a=b", "a=b"),
        (b"token=a%zz", "a%zz"),
        (b"node=a;token=k1", None),
    ],
)
def test_query_token(query: bytes, secret: str | None) -> None:
    assert query_token(query) == secret
