"""How servers are asked for tokens: as they put the prompt together themselves."""

from gateway.upstream.chat import ChatDialect
from gateway.upstream.dialects import find_dialect

ITEMS = [
    {"role": "user", "content": "q"},
    {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": "one"},
]
BODY = {
    "model": "m",
    "instructions": "Be brief.",
    "input": ITEMS,
    "tools": [{"type": "function", "name": "f", "parameters": {}}],
    "chat_template_kwargs": {"enable_thinking": False},
    "temperature": 0.5,
    "stream": False,
    "store": False,
}


def test_vllm_gets_the_chat_it_would_make_of_the_request():
    vllm = find_dialect("vllm")
    question = vllm.ask_tokens(vllm.adapt(BODY))
    assert question.target == "/tokenize"
    assert question.body.keys() == {"model", "messages", "tools", "chat_template_kwargs"}
    assert [message["role"] for message in question.body["messages"]] == ["system", "user", "assistant", "tool"]
    assert question.body["tools"] == [{"type": "function", "function": {"name": "f", "parameters": {}}}]


def test_a_chat_is_asked_about_as_it_is():
    chat = ChatDialect(find_dialect("vllm"))
    vllm = find_dialect("vllm")
    assert chat.ask_tokens(chat.adapt(BODY)) == vllm.ask_tokens(vllm.adapt(BODY))
    assert ChatDialect(find_dialect("generic")).ask_tokens({}) is None


def test_what_no_chat_has_a_form_for_is_not_asked_about():
    assert find_dialect("vllm").ask_tokens({"input": [{"type": "program"}]}) is None


def test_llamacpp_takes_the_request_as_it_is():
    question = find_dialect("llamacpp").ask_tokens(BODY)
    assert question.target == "/v1/responses/input_tokens"
    assert question.body == {name: BODY[name] for name in BODY.keys() - {"temperature", "stream", "store"}}


def test_of_an_unknown_server_no_way_is_known():
    assert find_dialect("generic").ask_tokens(BODY) is None


def test_vllm_is_spared_what_others_sealed():
    body = {"input": [{"type": "compaction", "encrypted_content": "gAAA"}, {"role": "user", "content": "q"}]}
    assert find_dialect("vllm").adapt(body)["input"] == [{"role": "user", "content": "q"}]
    assert find_dialect("generic").adapt(body)["input"] == body["input"]
