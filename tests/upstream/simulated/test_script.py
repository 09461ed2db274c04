import pytest

from gateway.upstream.simulated.script import ScriptedReply, load_script, take_reply


def test_load(tmp_path):
    path = tmp_path / "script.json"
    path.write_text('[{"match": "a", "status": 500, "json": {}}, {"sse": [[0.5, "data: x\\n\\n"]], "cut": true}]')
    assert load_script(path) == [
        ScriptedReply(match="a", status=500, json={}),
        ScriptedReply(sse=[(0.5, "data: x\n\n")], cut=True),
    ]


@pytest.mark.parametrize("text", ["{}", "[{", '[{"statsu": 500}]', '[{"sse": [["x", 1]]}]'])
def test_faults_in_a_script_are_named(tmp_path, text):
    path = tmp_path / "script.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"\w"):
        load_script(path)


def test_take_in_order_and_once():
    first, second = ScriptedReply(match="x"), ScriptedReply()
    replies = [first, second]
    assert take_reply(replies, b"no") == second
    assert take_reply(replies, b"no") is None
    assert take_reply(replies, b"has x") == first
    assert take_reply(replies, b"has x") is None
