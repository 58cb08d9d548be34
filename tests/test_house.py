"""The rules of the house for code: sizes, names, docstrings. Who imports whom: test_rooms.py.

Each rule is one test that lists every place that breaks it, as path:line and what to do. The few
tests at the end hold the rules themselves to account: they must bite.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from tests import house
from tests.house import ROOT, Source, broken, sources

FILE_LINES_MAX = 900
FUNCTION_LINES_MAX = 70
PRODUCT = ("wal", "logqueue")


# -- sizes and names -------------------------------------------------------------------------------

BANNED_WORDS = frozenset(
    (
        "manager",
        "managers",
        "helper",
        "helpers",
        "util",
        "utils",
        "utility",
        "utilities",
        "base",
        "common",
        "misc",
    )
)


def test_files_are_short() -> None:
    broken(
        f"a file has at most {FILE_LINES_MAX} lines; split it by noun",
        (
            f"{source.path}: {lines} lines"
            for source in sources()
            if (lines := len(source.text.splitlines())) > FILE_LINES_MAX
        ),
    )


def long_functions(files: Iterable[Source]) -> Iterator[str]:
    """Functions above the bound."""
    for source in files:
        for found in source.facts.functions:
            if found.lines > FUNCTION_LINES_MAX:
                yield f"{source.path}:{found.line}: {found.name} has {found.lines} lines"


def test_functions_are_short() -> None:
    broken(
        f"a function has at most {FUNCTION_LINES_MAX} lines below its docstring",
        long_functions(sources()),
    )


def empty_names(files: Iterable[Source]) -> Iterator[str]:
    """File, folder and class names with a word that says nothing."""
    for source in files:
        for word in house.words(source.path.removesuffix(".py")):
            if word in BANNED_WORDS:
                yield f"{source.path}: {word}"
        for found in source.facts.classes:
            for word in house.words(found.name):
                if word in BANNED_WORDS:
                    yield f"{source.path}:{found.line}: class {found.name}"


def test_names_say_something() -> None:
    broken(
        f"a name says what the thing holds or does, without {', '.join(sorted(BANNED_WORDS))}",
        empty_names(sources()),
    )


TWICE = {
    "Job": "a job on the wire (shapes), and the one that a handler is given (worker)",
}
"""Class names that users rely on in two places, and why each place has it."""


def repeated_names(files: Iterable[Source]) -> Iterator[str]:
    """Class names that occur more than once."""
    places: dict[str, list[str]] = {}
    for source in files:
        for found in source.facts.classes:
            places.setdefault(found.name, []).append(f"{source.path}:{found.line}")
    for name, found_at in sorted(places.items()):
        if len(found_at) > (2 if name in TWICE else 1):
            yield f"{name}: {', '.join(found_at)}"


def test_class_names_are_unique() -> None:
    broken("a class name means one thing, private ones too", repeated_names(sources(*PRODUCT)))


def test_exceptions_to_unique_names_are_needed() -> None:
    names = [found.name for source in sources(*PRODUCT) for found in source.facts.classes]
    broken(
        "it no longer occurs twice: take it out of TWICE", (n for n in TWICE if names.count(n) < 2)
    )


def test_test_folders_are_packages() -> None:
    folders = {source.path.rpartition("/")[0] for source in sources("tests", "bench")}
    broken(
        "a folder with tests has an __init__.py, so that equal file names never clash",
        (f"{folder}/" for folder in folders if not (ROOT / folder / "__init__.py").is_file()),
    )


def unordered(source: Source) -> Iterator[int]:
    """Lines of tables for tests that are sets: their order is another one in each process."""
    for line, table in source.facts.tables:
        is_set = isinstance(table, ast.Set | ast.SetComp) or (
            isinstance(table, ast.Call) and ast.unparse(table.func) in ("set", "frozenset")
        )
        if is_set or (isinstance(table, ast.BinOp) and ".keys()" in ast.unparse(table)):
            yield line


def test_tables_for_tests_have_an_order() -> None:
    broken(
        "parametrize takes a list, not a set: all processes of a run must agree; use sorted()",
        (f"{source.path}:{line}" for source in sources("tests") for line in unordered(source)),
    )


# -- words -----------------------------------------------------------------------------------------


def test_messages_quote_as_people_do() -> None:
    """Python changes the kind of quotes with what is inside, and doubles backslashes."""
    broken(
        "a message shows text as quoted(text), or as '{name}' where it is known to be printable",
        (f"{source.path}:{line}" for source in sources(*PRODUCT) for line in source.facts.reprs),
    )


PHRASES = {
    r"can not": "cannot",
    r"(?<![Tt]here )(?:is|are) no (?!longer|more|less|other|such|different|sooner)(?!\w+er\b)\w+": (
        "is not a ..., or must be a ..."
    ),
    r"(?:may|can|cannot) be meant": "invalid",
    r"bears?": "has; for programs: must be idempotent",
    r"signs? of life": "heartbeat, ping",
    r"of now on": "new",
    r"any more": "no longer",
    r"wish(?:es)?": "commands",
    r"(?<!\")(?:un)?told": "say who reports what to whom",
    r"[Nn]obody": "no client, no request, none",
    r"anew": "again; for records: rewritten; for files: rebuilt",
    r"[Ll]ets? (?:go|it go)|[Ll]etting go|[Gg]ives? up|given up": "release, discard, drop, abort",
    r"meant": "selected, for, or what it refers to",
    r"stands? (?:for|in|at|where|there|behind|beside|elsewhere|whole|on)": "is, means, replaces",
    r"stood": "was",
    r"(?<!that )(?:lies|lie|lay|lying)(?: in| at| below| beside| down| where)": "is",
    r"goes (?:on|by|over)(?!\w)": "continues, uses, exceeds",
    r"[Ww]hoever|(?:[Ss]ome|[Aa]ny|[Ee]very)body": "say who: a client, a caller, a reader",
    r"for good": "permanently",
    r"projection": "queue state",
    r"Who does not": "say what is not done",
    r"the (?:body|message|config) does not fit": "invalid request body, invalid message",
}
"""Phrases that stop a reader, as patterns between word boundaries, and what to say instead."""

_PHRASES = re.compile("|".join(rf"\b(?:{phrase})\b" for phrase in PHRASES))
_LINE_BREAK = re.compile(r"\n[ \t]*(?:# |> |\* )?|\"\n\s*f?\"")


def phrases(path: str, text: str) -> Iterator[str]:
    """Where a text has such phrases, line breaks in them or not."""
    flat = _LINE_BREAK.sub(" ", text)
    for found in _PHRASES.finditer(flat):
        yield f"{path}: {flat[max(found.start() - 30, 0) : found.end() + 20]!r}"


def test_prose_has_none_of_the_phrases_that_stop_a_reader() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    texts = [(source.path, source.text) for source in sources(*PRODUCT)]
    texts += [(str(page.relative_to(ROOT)), page.read_text()) for page in pages]
    broken(
        "plain words: " + "; ".join(f"{phrase} -> {better}" for phrase, better in PHRASES.items()),
        (place for path, text in texts for place in phrases(path, text)),
    )


def test_prose_of_tests_names_who_it_is_about() -> None:
    broken(
        "say who: a client, a worker, a reader, none",
        (
            f"{source.path}:{number}"
            for source in sources("tests", "bench", "tools")
            if source.path != "tests/test_house.py"
            for number, line in enumerate(source.text.splitlines(), 1)
            if "nobody" in line.lower()
        ),
    )


VAGUE_NAMES = {
    "_look": "what is looked for, or done about it",
    "is_meant": "affected, selected",
    "begun": "what has begun: its place, number, time",
    "said": "text, message, reply: what it is",
    "patience_s": "retry_s, timeout_s",
}
"""Names that stop a reader, and what to call things instead."""

_VAGUE_NAMES = re.compile(rf"\b(?:{'|'.join(VAGUE_NAMES)})\b")


def vague_names(files: Iterable[Source]) -> Iterator[str]:
    """Where the code of files has such names."""
    for source in files:
        if not _VAGUE_NAMES.search(source.text):
            continue
        for node in ast.walk(ast.parse(source.text)):
            name = getattr(node, "id", None) or getattr(node, "attr", None)
            name = name or getattr(node, "arg", None) or getattr(node, "name", None)
            if name in VAGUE_NAMES:
                yield f"{source.path}:{getattr(node, 'lineno', 0)}: {name}"


def test_names_do_not_stop_a_reader() -> None:
    broken(
        "plain names: " + "; ".join(f"{name} -> {better}" for name, better in VAGUE_NAMES.items()),
        vague_names(sources(*PRODUCT)),
    )
    sample = Source(
        "logqueue/sample.py", "class A:\n    begun: int = 0\ndef f(said): return said\n"
    )
    assert len([*vague_names([sample])]) == 3


def test_every_module_says_what_it_is() -> None:
    broken(
        "a module opens with a docstring: what it owns and what it must not know",
        (source.path for source in sources() if not source.facts.is_told),
    )


def undocumented(files: Iterable[Source]) -> Iterator[str]:
    """Public definitions without a docstring."""
    for source in files:
        for found in source.facts.public:
            if not found.has_docstring:
                yield f"{source.path}:{found.line}: {found.name}"


def test_everything_public_has_a_docstring() -> None:
    broken(
        "public functions, classes and methods have a docstring (an override may be marked so)",
        undocumented(sources(*PRODUCT)),
    )


# -- the rules bite --------------------------------------------------------------------------------

SAMPLE = (
    '''"""A module."""
class TaskManager:
    """Manages."""
    def run(self):
        pass
    @property
    def size(self): """How many."""
@pytest.mark.parametrize("n", N.keys() - {1})
def long_one():
    """Is long."""
'''
    + "    pass\n" * (FUNCTION_LINES_MAX + 1)
)


def test_the_rules_bite() -> None:
    sample = Source("logqueue/core/base_helpers.py", SAMPLE)
    assert len(list(long_functions([sample]))) == 1
    assert len(list(unordered(sample))) == 1
    assert list(empty_names([sample])) == [
        "logqueue/core/base_helpers.py: base",
        "logqueue/core/base_helpers.py: helpers",
        "logqueue/core/base_helpers.py:2: class TaskManager",
    ]
    assert list(undocumented([sample])) == ["logqueue/core/base_helpers.py:4: TaskManager.run"]
    assert list(repeated_names([sample, sample])) == [
        "TaskManager: logqueue/core/base_helpers.py:2, logqueue/core/base_helpers.py:2"
    ]
    said = "It can\n    # not. It is no use. There is no use."
    assert len(list(phrases("a", said))) == 2
