"""Who may do what: the key list, and the credentials that requests present.

Owns: the grammar of the key list, name prefixes, and finding the key that a secret belongs
to. Must not know: requests, routes, sockets. What a route demands is decided where routes live.

A key list is text of comma-separated entries, blanks around them ignored:

    secret                          all scopes, all names
    secret:scopes                   scopes joined with "+": read, write, delete, admin, rw
    secret:scopes:prefixes          prefixes joined with "|"; a prefix may itself contain ":"

Whatever could widen access by accident is refused when the list is parsed: an unknown or missing
scope between plus signs, a prefix part of separators only, one secret in two entries. Secrets are
never kept: a key holds the SHA-256 of its secret, and messages name entries by their position.

Clients of SQS never send a secret: they sign requests with one. Each key has a pair of credentials
for that, derived from its secret, so that the key list says nothing more. The server keeps the
derived one, from which the secret itself cannot be computed.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote_to_bytes

from logqueue.errors import Forbidden
from logqueue.model.scopes import ALL_SCOPES, Scope

KEY_ID_DIGITS: Final = 8
KEYS_FILE_BYTES_MAX: Final = 1 << 20
ACCESS_KEY_PREFIX: Final = "LQ"
ACCESS_KEY_DIGITS: Final = 18
SIGNING_SECRET_DIGITS: Final = 40
_SIGNING: Final = b"logqueue sqs secret access key"
_BEARER: Final = b"Bearer "
_BLANKS: Final = " \t\r\n"


class KeyListError(ValueError):
    """A key list that cannot be used. The message names the entry by position, never a secret."""


_SCOPE_TOKENS: Final[dict[str, Scope]] = {
    "read": Scope.READ,
    "r": Scope.READ,
    "write": Scope.WRITE,
    "w": Scope.WRITE,
    "rw": Scope.READ | Scope.WRITE,
    "delete": Scope.DELETE,
    "del": Scope.DELETE,
    "d": Scope.DELETE,
    "admin": Scope.ADMIN,
    "a": Scope.ADMIN,
}


@dataclass(frozen=True, slots=True)
class Key:
    """One credential: what it may do, and to which names.

    Attributes:
        id: A short digest, fit for metrics and logs.
        scopes: What the key may do.
        prefixes: Names the key may touch start with one of these; empty means every name.
        digest: SHA-256 of the secret.
        signing_secret: What requests of SQS clients are signed with; see `signing_credentials`.
    """

    id: str
    scopes: Scope = ALL_SCOPES
    prefixes: tuple[str, ...] = ()
    digest: bytes = field(default=b"", repr=False)
    signing_secret: str = field(default="", repr=False)

    @property
    def access_key_id(self) -> str:
        """What names the key in signed requests."""
        return _access_key_id(self.digest)

    def has(self, needed: Scope) -> bool:
        """Whether the key holds every one of these scopes."""
        return self.scopes & needed == needed

    def require(self, needed: Scope) -> None:
        """Check that the key holds every one of these scopes.

        Raises:
            Forbidden: It does not.
        """
        missing = [scope.name or "" for scope in Scope if scope in needed & ~self.scopes]
        if missing:
            names = " and ".join(missing).lower()
            raise Forbidden(f"this key lacks the scope {names}: use a key that has it")

    def allows(self, name: str) -> bool:
        """Whether the key may touch the topic or router of this (percent-decoded) name."""
        return not self.prefixes or name.startswith(self.prefixes)


@dataclass(frozen=True, slots=True)
class KeyRing:
    """All keys of a server. An empty ring is false: such a server requires no key."""

    keys: tuple[Key, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.keys)

    def of_access_key(self, access_key_id: str) -> Key | None:
        """The key that signed requests name so, or None; whether it signed them is another
        question."""
        for key in self.keys:
            if key.access_key_id == access_key_id:
                return key
        return None

    def authenticate(self, secret: str | None) -> Key | None:
        """The key of this secret, or None when it is unknown.

        Looks at every key with a constant-time comparison, so the time taken tells nothing about
        which key matched or how nearly one did.
        """
        if secret is None:
            return None
        digest = _digest(secret)
        found: Key | None = None
        for key in self.keys:
            if hmac.compare_digest(key.digest, digest):
                found = key
        return found


def signing_credentials(secret: str) -> tuple[str, str]:
    """The pair that clients of SQS are configured with.

    Args:
        secret: That of an API key.

    Returns:
        The access key id and the secret access key, both fit for URLs and environments.
    """
    keyed = hmac.new(_encoded(secret), _SIGNING, hashlib.sha256)
    return _access_key_id(_digest(secret)), keyed.hexdigest()[:SIGNING_SECRET_DIGITS]


def parse_keys(text: str) -> KeyRing:
    """Parse a key list.

    Args:
        text: The list in the grammar of this module's docstring. Empty entries are skipped.

    Returns:
        The ring of its keys, empty when there is no entry.

    Raises:
        KeyListError: An entry cannot be understood, or two entries share a secret.
    """
    keys: list[Key] = []
    position_of: dict[bytes, int] = {}
    for position, entry in enumerate(text.split(","), start=1):
        if not entry.strip(_BLANKS):
            continue
        key = _parse_entry(entry, position)
        if key.digest in position_of:
            raise KeyListError(
                f"entries {position_of[key.digest]} and {position} of the key list hold the same "
                "secret; give each key a secret of its own"
            )
        position_of[key.digest] = position
        keys.append(key)
    return KeyRing(tuple(keys))


def parse_keys_file(content: bytes) -> KeyRing:
    """Parse a file of keys: a key list over any number of lines.

    Args:
        content: Lines of entries; blank lines and those that begin with `#` are skipped.

    Raises:
        KeyListError: An entry cannot be understood, two entries share a secret, there is no entry,
            or the file is longer than `KEYS_FILE_BYTES_MAX`.
    """
    if len(content) > KEYS_FILE_BYTES_MAX:
        raise KeyListError(f"the file is over {KEYS_FILE_BYTES_MAX} bytes")
    lines = (line.strip(_BLANKS) for line in _decode(content).splitlines())
    ring = parse_keys(",".join(line for line in lines if line and not line.startswith("#")))
    if not ring:
        raise KeyListError("the file holds no key: give it at least one line, such as secret:read")
    return ring


def _parse_entry(entry: str, position: int) -> Key:
    secret, _, rest = entry.partition(":")
    scopes_text, _, prefixes_text = rest.partition(":")
    secret = secret.strip(_BLANKS)
    if not secret:
        raise KeyListError(
            f"entry {position} of the key list has no secret; "
            "write it as secret, secret:scopes or secret:scopes:prefixes"
        )
    digest = _digest(secret)
    _, signing_secret = signing_credentials(secret)
    return Key(
        id=digest.hex()[:KEY_ID_DIGITS],
        scopes=_parse_scopes(scopes_text, position),
        prefixes=_parse_prefixes(prefixes_text, position),
        digest=digest,
        signing_secret=signing_secret,
    )


def _parse_scopes(text: str, position: int) -> Scope:
    if not text.strip(_BLANKS):
        return ALL_SCOPES
    scopes = Scope(0)
    for token in text.split("+"):
        scope = _SCOPE_TOKENS.get(token.strip(_BLANKS).lower())
        if scope is None:
            # The token is not quoted: after a misplaced colon it may be part of a secret.
            raise KeyListError(
                f"entry {position} of the key list has an unknown or empty scope; scopes are "
                "read, write, delete, admin and rw, joined with '+' (none at all means all of "
                "them), and a secret may contain neither ':' nor ','"
            )
        scopes |= scope
    assert scopes, "a list of known scopes is never empty"
    return scopes


def _parse_prefixes(text: str, position: int) -> tuple[str, ...]:
    prefixes = tuple(prefix for part in text.split("|") if (prefix := part.strip(_BLANKS)))
    if text.strip(_BLANKS) and not prefixes:
        raise KeyListError(
            f"entry {position} of the key list has '|' but no prefix; "
            "name at least one prefix, or leave the part out to allow every name"
        )
    return prefixes


def bearer(header: bytes | None) -> str | None:
    """The secret of an Authorization header, or None when it carries none.

    The scheme is exactly ``Bearer`` and one blank, in this case; blanks around the secret are
    dropped.
    """
    if header is None or not header.startswith(_BEARER):
        return None
    secret = _decode(header[len(_BEARER) :]).strip(_BLANKS)
    return secret or None


def query_token(query_string: bytes) -> str | None:
    """The secret in a query string's ``token`` parameter, or None.

    Form-decoded (``+`` is a blank). The first ``token`` counts, even when it is empty.
    """
    for pair in query_string.split(b"&"):
        name, _, value = pair.partition(b"=")
        if _form_decode(name) == "token":
            return _form_decode(value) or None
    return None


def _form_decode(text: bytes) -> str:
    return _decode(unquote_to_bytes(text.replace(b"+", b" ")))


def _decode(text: bytes) -> str:
    # The environment gives keys as UTF-8 with stray bytes escaped; credentials read the same way.
    return text.decode("utf-8", "surrogateescape")


def _encoded(secret: str) -> bytes:
    return secret.encode("utf-8", "surrogateescape")


def _digest(secret: str) -> bytes:
    return hashlib.sha256(_encoded(secret)).digest()


def _access_key_id(digest: bytes) -> str:
    return ACCESS_KEY_PREFIX + digest.hex()[:ACCESS_KEY_DIGITS].upper()
