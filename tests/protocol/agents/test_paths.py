import pytest

from gateway.protocol.agents.paths import ROOT, depth_of, is_below, is_task_name, join, resolve


@pytest.mark.parametrize("name", ["a", "assess_alpha", "x9", "_", "a" * 64])
def test_names_of_small_letters_digits_and_underscores_are_names(name):
    assert is_task_name(name)


@pytest.mark.parametrize("name", ["", "A", "a-b", "a/b", "ä", "a\n", "a" * 65, "..", "a b"])
def test_others_are_not(name):
    assert not is_task_name(name)


@pytest.mark.parametrize(
    ("target", "path"),
    [("alpha", "/root/x/alpha"), ("a/b", "/root/x/a/b"), ("/root", "/root"), ("/root/beta", "/root/beta")],
)
def test_a_target_is_a_whole_path_or_one_below_the_caller(target, path):
    assert resolve("/root/x", target) == path


def test_the_root_is_at_depth_0():
    assert depth_of(ROOT) == 0
    assert depth_of(join(join(ROOT, "a"), "b")) == 2


def test_an_agent_is_below_itself_and_its_ancestors_and_no_other():
    assert is_below("/root/a", "/root/a")
    assert is_below("/root/a/b", "/root/a")
    assert not is_below("/root/ab", "/root/a")
