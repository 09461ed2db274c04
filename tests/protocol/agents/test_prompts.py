import pytest

from gateway.protocol.agents.actions import ACTIONS
from gateway.protocol.agents.prompts import build_guidance


@pytest.mark.parametrize(("path", "parent"), [("/root", None), ("/root/alpha", "/root"), ("/root/a/b", "/root/a")])
def test_the_guidance_says_who_one_is_and_how_all_work_together(path, parent):
    text = build_guidance(path, parent, 7)
    assert text.startswith(f"You are agent `{path}`")
    assert all(f"`{action}`" in text for action in ACTIONS)
    assert "At most 7 agents" in text
    assert "{" not in text


def test_only_an_agent_that_was_spawned_hears_of_its_parent_and_its_task():
    assert "`/root/a`" in build_guidance("/root/a/b", "/root/a", 3)
    assert "NEW_TASK" in build_guidance("/root/a/b", "/root/a", 3)
    assert "NEW_TASK" not in build_guidance("/root", None, 3)
