import pytest

from gateway.engine.input_items import Page
from gateway.protocol.errors import InvalidRequest
from gateway.transport.paging import read_page


def test_the_defaults():
    assert read_page({}) == read_page({"after": ""}) == Page(after=None, limit=20, order="desc")


def test_what_is_asked_for():
    query = {"after": "msg_1", "limit": "100", "order": "asc", "include[]": "x", "beta": "true"}
    assert read_page(query) == Page(after="msg_1", limit=100, order="asc")


@pytest.mark.parametrize("limit", ["0", "101", "-1", "1.5", "+5", " 5", "1_0", "", "ten", "٣", "9" * 5000])
def test_a_limit_that_cannot_be(limit):
    with pytest.raises(InvalidRequest, match="from 1 to 100") as error:
        read_page({"limit": limit})
    assert (error.value.code, error.value.param) == ("invalid_value", "limit")


@pytest.mark.parametrize("order", ["", "ASC", "newest"])
def test_an_order_that_cannot_be(order):
    with pytest.raises(InvalidRequest, match="asc or desc") as error:
        read_page({"order": order})
    assert (error.value.code, error.value.param) == ("invalid_value", "order")
