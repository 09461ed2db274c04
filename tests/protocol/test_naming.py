"""The names a client knows an engine's items by."""

import pytest
from property.engine import CALL, done, listen


@pytest.mark.parametrize("call_id", [None, "", 5, "c" * 65, "taken"])
def test_a_call_id_that_cannot_be_kept_is_replaced(call_id):
    client = listen(done({**CALL, "call_id": call_id}, 0), used_call_ids={"taken"})
    assert client.output[0]["call_id"].startswith("call_")
    assert len(client.output[0]["call_id"]) == 37


def test_a_call_id_is_kept_once():
    used = {"other"}
    client = listen(done(CALL, 0), done(CALL, 1), used_call_ids=used)
    first, second = (item["call_id"] for item in client.output)
    assert first == "call_1" != second
    assert used == {"other", first, second}


def test_namespaces_are_kept_and_junk_is_not():
    client = listen(done({**CALL, "namespace": "mail"}, 0), done({**CALL, "namespace": 5}, 1))
    assert [item.get("namespace") for item in client.output] == ["mail", None]
