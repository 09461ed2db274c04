"""The comparison that is made for real inference servers, here of the simulator."""

import json

import pytest
from conformance.real_agents import main
from integration.test_chat_upstream import simulated

CHILD = '@tool get_weather {"city": "Paris"}\n@then\n@say Cloudy.'
SPAWN = json.dumps({"task_name": "alpha", "fork_turns": "none", "message": CHILD})
COUNTS = "@say " + " ".join(f"{number}" for number in range(120))
DELEGATES = f"@tool spawn_agent {SPAWN}\n@then\n@tool wait_agent {{}}\n@then\n@say It is cloudy."


def test_what_agents_tell_are_asked_and_billed_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    with simulated(itl=0.002) as url:
        failed = main(["--upstream", url, "--model", "sim", "--prompt", DELEGATES, "--long-prompt", COUNTS])
    lines = capsys.readouterr().out.splitlines()
    assert (failed, len(lines)) == (0, 2 * 5), lines


def test_a_model_that_delegates_nothing_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with simulated(itl=0.002) as url:
        failed = main(["--upstream", url, "--model", "sim", "--prompt", "@say It is cloudy.", "--long-prompt", COUNTS])
    lines = capsys.readouterr().out.splitlines()
    assert failed == len([line for line in lines if "0 items function_call" in line]) == 2 * 4
