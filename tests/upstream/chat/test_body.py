import json

from gateway.upstream.chat.body import translate_body


def translate(message: dict, finish: str = "stop", **more) -> dict:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish, **more}
    return json.loads(translate_body(json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode()))


def token(text: str) -> dict:
    return {"token": text, "logprob": -1, "bytes": list(text.encode()), "top_logprobs": []}


def test_everything_an_answer_can_hold():
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    answer = translate({"reasoning": "T", "content": "S", "refusal": "R", "tool_calls": [call, {**call, "id": "2"}]})
    assert answer["status"] == "completed"
    thought, message, *calls = answer["output"]
    assert thought["content"] == [{"type": "reasoning_text", "text": "T"}]
    assert message["content"] == [
        {"type": "output_text", "text": "S", "annotations": [], "logprobs": []},
        {"type": "refusal", "refusal": "R"},
    ]
    assert [one["call_id"] for one in calls] == ["1", "2"]
    assert calls[0] == {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}


def test_other_words_for_the_same():
    assert translate({"reasoning_content": "T"})["output"][0]["content"][0]["text"] == "T"
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert translate({"content": parts})["output"][0]["content"][0]["text"] == "ab"
    (call,) = translate({"content": None, "function_call": {"name": "f", "arguments": {"a": 1}}})["output"]
    assert (call["name"], call["arguments"]) == ("f", '{"a":1}')


def test_nothing_said_is_no_item():
    assert translate({"content": "", "reasoning": None, "tool_calls": []})["output"] == []


def test_ends():
    assert translate({"content": "a"}, "length")["incomplete_details"] == {"reason": "max_output_tokens"}
    assert translate({"content": "a"}, "content_filter")["incomplete_details"] == {"reason": "content_filter"}
    assert translate({"content": "a"}, "eos_token")["status"] == "completed"
    failed = translate({"content": "a"}, "abort")
    assert failed["status"] == "failed"
    assert "abort" in failed["error"]["message"]


def test_usage():
    usage = {
        "prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 2}, "completion_tokens_details": {"reasoning_tokens": 1},
    }  # fmt: skip
    body = {"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}], "usage": usage}
    assert json.loads(translate_body(json.dumps(body).encode()))["usage"] == {
        "input_tokens": 5, "output_tokens": 3, "total_tokens": 8,
        "input_tokens_details": {"cached_tokens": 2}, "output_tokens_details": {"reasoning_tokens": 1},
    }  # fmt: skip


def test_of_all_tokens_the_text_keeps_its_own():
    tokens = [token(text) for text in ("<think>", "Hm", "</think>", "For", "ty", "<end>")]
    answer = translate({"reasoning": "Hm", "content": "Forty"}, logprobs={"content": tokens})
    assert answer["output"][1]["content"][0]["logprobs"] == tokens[3:5]


def test_tokens_that_hold_halves_of_characters_are_all_kept():
    tokens = [token("\ufffd"), token("\ufffd")]
    answer = translate({"content": "é"}, logprobs={"content": tokens})
    assert answer["output"][0]["content"][0]["logprobs"] == tokens


def test_an_error_in_place_of_an_answer():
    for error, told in (({"message": "m", "code": 500}, {"message": "m", "code": 500}), ("m", {"message": "m"})):
        assert json.loads(translate_body(json.dumps({"error": error}).encode())) == {"status": "failed", "error": told}
    old = {"object": "error", "message": "m"}
    assert json.loads(translate_body(json.dumps(old).encode()))["error"]["message"] == "m"


def test_what_is_no_chat_answer_stays_as_it_is():
    for body in (b"<html>", b"[]", b'{"choices":[]}', b'{"choices":[{"index":1}]}', b'{"object":"list"}'):
        assert translate_body(body) == body
