"""The terminal of a failed response, in ever smaller forms."""

from hypothesis import given
from hypothesis import strategies as st
from property.engine import Client, faults_of, items, make_turn, spell, whole

from gateway.protocol import codec
from gateway.protocol.errors import GatewayError, ResourceLimitExceeded, UpstreamError, UpstreamRefused
from gateway.protocol.limits import MINIMAL_ERROR_BYTES
from gateway.protocol.minimal_error import minimal_error

words = st.one_of(st.text(max_size=600), st.text('"\\\n\0é€\udfff', max_size=600), st.text("abc _", max_size=600))
errors = st.one_of(
    st.builds(GatewayError, words),
    st.builds(lambda message, code: UpstreamError(message, code=code), words, words),
    st.builds(
        lambda message, code, kind: UpstreamRefused(message, upstream_status=429, code=code, type=kind),
        words,
        words,
        words,
    ),
    st.builds(ResourceLimitExceeded, st.just("max_retained_bytes"), st.integers(1, 1 << 62)),
)


@given(errors, st.integers(0, 1 << 62))
def test_the_minimal_error_always_fits_and_says_everything_twice(error, number):
    data = codec.encode(minimal_error(error, number))
    assert len(data) <= MINIMAL_ERROR_BYTES
    event = codec.decode(data)
    assert event["type"] == "error"
    assert event["sequence_number"] == number
    assert event["error"] == {
        "type": event["error"]["type"],
        "code": event["code"],
        "message": event["message"],
        "param": event["param"],
    }
    assert event["code"]
    assert event["error"]["type"]
    assert event["message"] or not error.message


@given(errors, st.lists(items, max_size=3), st.integers(0, 40), st.one_of(st.none(), st.text(min_size=4, max_size=99)))
def test_the_forms_get_smaller_share_one_number_and_each_ends_the_stream(error, said, heard, instructions):
    turn = make_turn()
    turn.response.instructions = instructions
    turn.response.tools = [{"type": "function", "name": "f"}]
    client = Client(turn)
    round_ = turn.open_round()
    events = [event for index, item in enumerate(said) for event in spell(item, index, whole)]
    for event in events[:heard]:
        client.ingest(round_, event)
    owed, forms = turn.fail(error, round_)
    client.hear(owed)
    told = [codec.decode(codec.encode(form)) for form in forms]
    sizes = [len(codec.encode(form)) for form in told]

    assert [form["type"] for form in told] == ["response.failed"] * 3 + ["error"]
    assert sizes == sorted(sizes, reverse=True)
    for form in told:
        assert faults_of([*client.told, form], error_terminal=True) == []
    full, bare, bones, _ = (form.get("response") for form in told)
    assert full["status"] == bare["status"] == bones["status"] == "failed"
    assert full["error"]["code"] == bare["error"]["code"] == bones["error"]["code"] == error.code
    assert (bare["output"], bare["instructions"], bare["tools"]) == ([], instructions, turn.response.tools)
    assert (bones["output"], bones["instructions"], bones["tools"]) == ([], None, [])
