"""The rules of the tree that no linter knows."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TREES = ("gateway", "config", "alembic", "loadtests", "tests", "docs", ".ci")
SOURCES = sorted((ROOT / "gateway").rglob("*.py"))
PACKAGES = [path for path in SOURCES if path.name == "__init__.py"]
FILE_LINES = 400
FUNCTION_LINES = 60
ROOMS_FOR_ANYTHING = ("util", "helper", "manager", "common", "misc")

# In two pieces each, so that this file does not hold what it looks for.
FORBIDDEN = [
    first + second
    for first, second in (
        ("/wo", "rk/"),
        ("contract/", "decisions"),
        ("py", "pi.org"),
        ("python", "hosted.org"),
        ("npm", "js.org"),
    )
]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def find_functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def find_texts() -> Iterator[Path]:
    """Every file that belongs to the project, git's own aside; captures hold what servers sent, whatever it was."""
    yield from (
        path
        for path in ROOT.iterdir()
        if path.is_file() and not path.name.startswith((".coverage", ".git", "responses"))
    )
    for tree in TREES:
        for path in sorted((ROOT / tree).rglob("*")):
            if path.is_file() and not {"__pycache__", "captures"} & set(path.parts):
                yield path


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_files_and_functions_are_short(path):
    assert len(path.read_text().splitlines()) <= FILE_LINES, "two jobs share this room: split it"
    long = [node.name for node in find_functions(path) if (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES]
    assert long == []


def test_no_room_is_for_anything():
    assert [name_of(path) for path in SOURCES if any(word in path.stem for word in ROOMS_FOR_ANYTHING)] == []


@pytest.mark.parametrize("path", PACKAGES, ids=name_of)
def test_packages_say_what_they_are_for(path):
    assert ast.get_docstring(ast.parse(path.read_text()))


def test_every_folder_of_sources_is_a_package():
    assert {path.parent for path in SOURCES} == {path.parent for path in PACKAGES}


def test_the_migrations_do_not_hide_the_library():
    assert not (ROOT / "alembic" / "__init__.py").exists()


def test_no_file_speaks_of_the_machine_it_was_written_on():
    texts = list(find_texts())
    assert len(texts) > 200
    found = [f"{name_of(path)}: {word}" for path in texts for word in FORBIDDEN if word.encode() in path.read_bytes()]
    assert found == []
