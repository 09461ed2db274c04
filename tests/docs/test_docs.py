"""The pages agree with the code and with each other."""

import ast
import re
from pathlib import Path

import pytest
from docs.pages import PAGES, ROOT, find_fences

from gateway.config import load_config
from gateway.config.render import written_form
from gateway.config.tree import format_path, gateway_tree, walk
from gateway.protocol import injection
from gateway.protocol.lifecycle import MOVES, Phase
from gateway.protocol.state_diagram import draw_states
from gateway.protocol.steering import STEER_MOVES, SteerPhase
from gateway.telemetry import names
from gateway.telemetry.names import Metric

EXPLANATIONS = ROOT / "docs/explanation"
CONFIG = load_config(None, {}).config
_BY_RESPONSE = 'response["the response decides"]'
SETTINGS = {format_path(path): (node, value) for path, node, value in walk(gateway_tree(), CONFIG)}
METRICS = {value.name for value in vars(names).values() if isinstance(value, Metric)}
ATTRIBUTES = {value for name, value in vars(names).items() if name.startswith("ATTR_")}
SECTIONS = {key.partition(".")[0] for key in SETTINGS}
FILE_ENDINGS = (".py", ".md", ".db", ".toml")


def find_marked(page: Path) -> list[str]:
    """Return what stands between backticks outside of fenced blocks."""
    prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", prose)


def find_codes() -> set[str]:
    """Return every error code the gateway raises by name; the simulator's are its own."""
    codes = set()
    for path in (ROOT / "gateway").rglob("*.py"):
        if "simulated" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "code" and isinstance(node.value, ast.Constant):
                codes.add(node.value.value)
    return {code for code in codes if isinstance(code, str)}


def find_named_values(node: ast.AST) -> list[tuple[str | None, ast.expr]]:
    """Return what a node gives a name to: a keyword argument, or a plain name."""
    if isinstance(node, ast.keyword):
        return [(node.arg, node.value)]
    if isinstance(node, ast.Assign):
        return [(target.id, node.value) for target in node.targets if isinstance(target, ast.Name)]
    return []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text())
    local = [target.partition("#")[0] for target in targets if not re.match(r"https?://|#", target)]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_every_page_can_be_found_from_the_index() -> None:
    found, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in found:
            continue
        found.add(page)
        targets = re.findall(r"\]\(([^)#\s]+\.md)[^)]*\)", page.read_text())
        waiting += [(page.parent / target).resolve() for target in targets if not target.startswith("http")]
    assert set(PAGES) - found == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_keys_and_metrics_on_a_page_exist(page: Path) -> None:
    marked = find_marked(page)
    keys = {text for text in marked if re.fullmatch(r"[a-z]+\.[a-z_]+", text) and text.partition(".")[0] in SECTIONS}
    bracketed = {
        f"{section}.{key}" for text in marked for section, key in re.findall(r"^\[([a-z]+)\] ([a-z_]+)$", text)
    }
    assert {key for key in keys | bracketed if not key.endswith(FILE_ENDINGS)} - set(SETTINGS) - ATTRIBUTES == set()
    metrics = {found for text in marked if (found := re.match(r"gateway_[a-z_]+", text))}
    assert {metric[0] for metric in metrics} - METRICS == set()


def test_errors_name_bounds_that_can_be_configured() -> None:
    bounds = {
        value.value
        for path in (ROOT / "gateway").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        for name, value in find_named_values(node)
        if name == "bound" and isinstance(value, ast.Constant) and isinstance(value.value, str)
    }
    assert len(bounds) > 15
    assert bounds - set(SETTINGS) == set()


def test_the_limits_page_tells_the_defaults() -> None:
    page = (EXPLANATIONS / "limits.md").read_text()
    rows = re.findall(r"^\| `(responses\.max_\w+_bytes)` \| (\d+) MiB \|", page, re.MULTILINE)
    assert len(rows) == 4
    for key, mebibytes in rows:
        node, value = SETTINGS[key]
        assert written_form(node, value) == f"{mebibytes}MiB"


def test_every_limit_callers_can_meet_is_explained() -> None:
    page = (EXPLANATIONS / "limits.md").read_text()
    limits = {key for key in SETTINGS if key.startswith(("server.", "responses.")) and ".max_" in key}
    assert len(limits) >= 10
    assert {key for key in limits if f"`{key}`" not in page} == set()


def test_the_lifecycle_is_drawn_from_the_table() -> None:
    (diagram,) = find_fences("mermaid", pages=[EXPLANATIONS / "lifecycle.md"])
    assert diagram.text.strip() == draw_states(MOVES, Phase.ADMITTED)


def test_the_states_of_steering_are_drawn_from_the_table() -> None:
    (diagram,) = find_fences("mermaid", pages=[EXPLANATIONS / "steering.md"])
    assert diagram.text.strip() == draw_states(STEER_MOVES, SteerPhase.RUNNING)


def test_the_ways_of_an_inject_are_drawn_from_the_table() -> None:
    (diagram,) = find_fences("mermaid", pages=[EXPLANATIONS / "injection.md"])
    ways = [
        f"    inject -- {standing.value} --> {answer[0] if answer else _BY_RESPONSE}"
        for standing, answer in injection.ANSWERS.items()
    ]
    assert diagram.text.splitlines() == ["flowchart LR", '    inject["response.inject"]', *ways]


def test_the_answers_to_injects_are_those_of_the_table() -> None:
    page = (EXPLANATIONS / "injection.md").read_text()
    rows = {row[1]: row[2] for row in re.finditer(r"^\| `(\w+)` \| .* \| (.*) \|$", page, re.MULTILINE)}
    assert list(rows) == [standing.value for standing in injection.Standing]
    for standing, answer in injection.ANSWERS.items():
        assert (
            (rows[standing.value] == f"`{answer[0]}`") if answer else rows[standing.value].startswith(("it is", "held"))
        )


@pytest.mark.checklist(60)
def test_every_error_code_has_a_row() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text()
    rows = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))
    codes = find_codes()
    assert len(codes) > 10
    assert codes - rows == set()


def test_decisions_are_numbered_and_listed() -> None:
    pages = sorted((ROOT / "docs/adr").glob("0*.md"))
    index = (ROOT / "docs/adr/README.md").read_text()
    for number, page in enumerate(pages, 1):
        text = page.read_text()
        assert page.name.startswith(f"{number:04d}-")
        assert text.startswith(f"# {number}. ")
        assert re.findall(r"^## (\w+)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
        assert f"({page.name})" in index
