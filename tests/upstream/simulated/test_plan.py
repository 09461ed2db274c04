from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.simulated.plan import Call, Plan, Say, Think, count_tokens, cut_plan, split_tokens


@given(st.text())
def test_tokens_join_to_the_text(text):
    assert "".join(split_tokens(text)) == text


@given(st.lists(st.text(min_size=1)), st.integers(0, 50))
def test_cutting_keeps_the_beginning_within_the_limit(texts, limit):
    plan = Plan([Say(text) for text in texts])
    cut = cut_plan(plan, limit)
    assert count_tokens(cut) == min(limit, count_tokens(plan))
    assert cut.incomplete == (count_tokens(plan) > limit)
    assert "".join(texts).startswith("".join(step.text for step in cut.steps))


def test_cutting_keeps_the_kind():
    plan = Plan([Think("a b"), Call("f", '{"a": 1}')])
    assert cut_plan(plan, 3).steps == [Think("a b"), Call("f", '{"a":')]
    assert cut_plan(plan, None) is plan
