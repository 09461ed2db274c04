"""Calls of actions, their outputs and mail, as items."""

import json

import pytest
from property.trees import ALPHA, ROOT, mail, seal

from gateway.protocol.agents.action_slots import ActionSlot, MailSlot, seal_arguments


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"message":"m","task_name":"a"}', f'{{"message":"{seal("m")}","task_name":"a"}}'),
        ('{ "task_name" : "é", "message":"m" }', f'{{"task_name":"é","message":"{seal("m")}"}}'),
        ('{"target":"a","message":""}', f'{{"target":"a","message":"{seal("")}"}}'),
        (
            '{"message":{"a": [1]}}',
            f'{{"message":"{seal(json.dumps({"a": [1]}, separators=(",", ":")))}"}}',
        ),
        ('{"task_name": "a"}', '{"task_name": "a"}'),
        ('{"timeout_ms": 1}', '{"timeout_ms": 1}'),
        ('{"target":"a","massage":"m"}', f'{{"target":"a","massage":"{seal("m")}"}}'),
        ("", ""),
        (" ", " "),
        ('{"message":"m"', seal('{"message":"m"')),
        ('["m"]', seal('["m"]')),
        ("soon", seal("soon")),
        ('{"message":NaN}', seal('{"message":NaN}')),
    ],
)
def test_the_message_becomes_a_token_and_the_rest_stays(arguments: str, shown: str):
    assert seal_arguments(arguments, seal) == shown


def test_half_a_character_is_sealed_as_it_came():
    sealed = []
    seal_arguments('{"message":"\\ud83d"}', lambda text: sealed.append(text) or "token")
    seal_arguments('"\ud83d', lambda text: sealed.append(text) or "token")
    assert sealed == ["\ud83d", '"\ud83d']


def test_a_call_shows_its_arguments_once_it_was_carried_out():
    slot = ActionSlot("mac_1", "call_1", "list_agents")
    slot.carried.push('{"path_prefix":"/root"}')
    assert slot.render("completed") == slot.skeleton()
    assert slot.awaits
    slot.conclude(None)
    assert not slot.awaits
    assert slot.render("completed")["arguments"] == '{"path_prefix":"/root"}'


def test_mail_is_sealed_anew_wherever_it_is_shown():
    tokens = iter(["one", "two"])
    slots = [MailSlot(f"amsg_{n}", mail(ROOT, ALPHA), lambda text: next(tokens)) for n in range(2)]
    shown = [slot.render("completed")["content"][0]["encrypted_content"] for slot in slots]
    assert shown == ["one", "two"]
