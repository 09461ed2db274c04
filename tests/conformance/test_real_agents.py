"""The comparison that is made for real inference servers, here of the simulator."""

import json

import pytest
from conformance.real_agents import main
from integration.test_chat_upstream import simulated

CHILD = '@tool get_weather {"city": "Paris"}\n@then\n@say Cloudy.'
SPAWN = json.dumps({"task_name": "alpha", "fork_turns": "none", "message": CHILD})
DELEGATES = f"@tool spawn_agent {SPAWN}\n@then\n@tool wait_agent {{}}\n@then\n@say It is cloudy."


def test_what_agents_tell_are_asked_and_billed_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    with simulated() as url:
        failed = main(["--upstream", url, "--model", "sim", "--prompt", DELEGATES])
    lines = capsys.readouterr().out.splitlines()
    assert (failed, len(lines)) == (0, 2 * 4), lines


def test_a_model_that_delegates_nothing_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with simulated() as url:
        failed = main(["--upstream", url, "--model", "sim", "--prompt", "@say It is cloudy."])
    lines = capsys.readouterr().out.splitlines()
    assert failed == len(lines) == 2 * 4
    assert "0 items function_call" in lines[0]
