import pytest

from gateway.cassette.format import FORMAT, End, FormatError, Frame, Head, encode_record, read_cassette

HEAD = encode_record(Head(format=FORMAT))
FRAME = encode_record(Frame(s=0, n=0, t=5, dir="c2s", op=1, fin=True, text="é\u2028"))


def test_records_come_back_as_they_were():
    cassette = read_cassette(iter([HEAD, FRAME]))
    assert [encode_record(record) for record in cassette.records] == [HEAD, FRAME]
    assert cassette.records[1].payload == "é\u2028".encode()


def test_the_discriminator_stands_first_and_defaults_are_left_out():
    assert FRAME.decode() == '{"k":"frame","s":0,"n":0,"t":5,"dir":"c2s","op":1,"fin":true,"text":"é\u2028"}\n'


@pytest.mark.agents(137)
@pytest.mark.parametrize("cut", [1, len(FRAME) // 2, len(FRAME) - 1])
def test_a_cut_last_line_is_left_out(cut):
    cassette = read_cassette(iter([HEAD, FRAME, FRAME[:cut]]))
    assert len(cassette.records) == 2
    assert (cassette.is_complete, cassette.is_intact) == (False, None)


def test_the_end_tells_whether_a_line_was_changed():
    end = encode_record(End(counts={}, sha256="0" * 64))
    cassette = read_cassette(iter([HEAD, end]))
    assert (cassette.is_complete, cassette.is_intact) == (True, False)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "no whole line"),
        ([FRAME], "line 1: must be the head"),
        ([encode_record(Head(format="else/1"))], "line 1: must be the head"),
        ([HEAD, b"{}\n"], "line 2: "),
        ([HEAD, b"\xff\n"], "line 2: "),
        ([HEAD, b"[" * 100_000 + b"\n"], "line 2: "),
        ([HEAD, b'{"k":"frame","s":0,"n":0,"t":0,"dir":"up","op":1,"fin":true}\n'], "line 2: "),
        ([HEAD, b'{"k":"frame","s":0,"n":0,"t":0,"dir":"c2s","op":2,"fin":true,"b64":"?"}\n'], "line 2: b64"),
        ([HEAD, encode_record(End(counts={}, sha256="")), FRAME], "line 3: stands behind the end"),
    ],
)
def test_what_is_no_recording_is_refused_with_the_line(lines, told):
    with pytest.raises(FormatError, match=told):
        read_cassette(iter(lines))
