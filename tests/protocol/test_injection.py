"""What an inject is told whatever it holds, by where its response stands; its form is a matter of frames."""

import pytest

from gateway.protocol.injection import ANSWERS, Standing, refuse_inject


@pytest.mark.agents(67, 69, 78)
@pytest.mark.parametrize("standing", Standing)
def test_where_a_response_stands_decides_first(standing):
    told = refuse_inject("resp_1", [1, {"a": None}], standing)
    if ANSWERS[standing] is None:
        assert told is None
    else:
        assert (told.response_id, told.input, told.error.code) == ("resp_1", [1, {"a": None}], ANSWERS[standing][0])
        assert "'resp_1'" in told.error.message


def test_the_words_clients_know():
    def words(standing):
        return refuse_inject("r", [], standing).error.message

    assert words(Standing.UNKNOWN) == "Response 'r' was not found."
    assert words(Standing.ENDED) == "Response 'r' has already completed."
