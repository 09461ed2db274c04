"""The comparison that is made for real inference servers, here of the simulator and a process of a real MCP server."""

import pytest
from conformance.real_rounds import main
from integration.test_chat_upstream import simulated

ADDS = '@tool mcp__docs__add {"a": 17, "b": 25}\n@then\n@say It is 42.'


@pytest.mark.checklist(203, 205, 214, 403, 39, 40, 41, 44, 601)
def test_what_is_told_stored_asked_and_billed_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    with simulated() as url:
        failed = main(["--upstream", url, "--model", "sim", "--prompt", ADDS])
    lines = capsys.readouterr().out.splitlines()
    assert (failed, len(lines)) == (0, 2 * 3 * 5), lines


def test_a_model_that_calls_nothing_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with simulated() as url:
        failed = main(["--upstream", url, "--model", "sim", "--prompt", "@say It is 42."])
    lines = capsys.readouterr().out.splitlines()
    assert failed == len(lines) == 2 * 3 * 5
    assert "1 rounds; 0 items mcp_call" in lines[0]
