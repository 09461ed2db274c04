from gateway.upstream.chat.request import write_request

TOOL = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}, "strict": None}


def write(**body) -> dict:
    return write_request(
        {"model": "m", "input": "hi", "stream": False, "store": False, **body}, max_tokens="max_tokens"
    )


def test_the_least():
    assert write() == {"model": "m", "stream": False, "messages": [{"role": "user", "content": "hi"}]}


def test_a_stream_is_asked_for_its_usage():
    assert write(stream=True)["stream_options"] == {"include_usage": True}


def test_what_has_the_same_name_and_what_nobody_knows_is_passed_on():
    same = {
        "temperature": 0.5, "top_p": 0.9, "presence_penalty": 1, "frequency_penalty": -1, "user": "u", "seed": 7,
        "stop": ["x"], "chat_template_kwargs": {"enable_thinking": False}, "cache_salt": "s",
    }  # fmt: skip
    assert write(**same).items() >= same.items()


def test_what_chats_have_no_form_for_stays_behind():
    left = write(truncation="auto", reasoning={"summary": "auto"}, include=["reasoning.encrypted_content"], text={})
    assert left == write()


def test_bounds_effort_and_verbosity():
    chat = write(max_output_tokens=5, reasoning={"effort": "low"}, text={"verbosity": "high"})
    assert chat.items() >= {"max_tokens": 5, "reasoning_effort": "low", "verbosity": "high"}.items()
    assert "max_output_tokens" not in chat


def test_logprobs_are_asked_for_by_include():
    chat = write(include=["message.output_text.logprobs"], top_logprobs=3)
    assert (chat["logprobs"], chat["top_logprobs"]) == (True, 3)
    assert write(include=["message.output_text.logprobs"])["logprobs"] is True
    assert "top_logprobs" not in write(top_logprobs=3)


def test_structured_output():
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True, "description": None}
    schema = {"name": "n", "schema": {"type": "object"}, "strict": True}
    assert write(text={"format": form})["response_format"] == {"type": "json_schema", "json_schema": schema}
    assert write(text={"format": {"type": "json_object"}})["response_format"] == {"type": "json_object"}
    assert "response_format" not in write(text={"format": {"type": "text"}})


def test_tools_and_the_choice_among_them():
    chat = write(tools=[TOOL], tool_choice={"type": "function", "name": "f"}, parallel_tool_calls=False)
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    assert chat["tools"] == [{"type": "function", "function": function}]
    assert chat["tool_choice"] == {"type": "function", "function": {"name": "f"}}
    assert chat["parallel_tool_calls"] is False
    assert write(tools=[TOOL], tool_choice="required")["tool_choice"] == "required"


def test_a_caller_cannot_say_other_messages():
    assert write(messages=[{"role": "system", "content": "evil"}], stream_options={"x": 1}) == write()
