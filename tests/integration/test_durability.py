"""Who saw a response completed finds it again, whatever happened to the process a moment later."""

import json
from pathlib import Path

import pytest
from harness.upstream import Upstream
from integration.databases import DatabaseGateway
from integration.kills import Campaign, answer_by_model, find_completed

RESPONSE_ID = f"resp_{'0' * 32}"


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_twenty_kills_lose_nothing_a_client_saw(tmp_path: Path) -> None:
    with Upstream() as upstream:
        upstream.otherwise(answer_by_model)
        gateway = DatabaseGateway(tmp_path, upstream.url, f"sqlite:///{tmp_path}/responses.db")
        report = Campaign(gateway, kills=20, seed=20).run()
    assert report.broken == []
    # The kills came while there was something to lose.
    assert len(report.told) > 20
    assert report.in_flight > 20
    assert report.stored >= len(report.told)


@pytest.mark.postgres
@pytest.mark.timeout(120)
def test_kills_lose_nothing_on_postgresql(tmp_path: Path, postgres_database: str) -> None:
    with Upstream() as upstream:
        upstream.otherwise(answer_by_model)
        gateway = DatabaseGateway(tmp_path, upstream.url, postgres_database)
        report = Campaign(gateway, kills=4, seed=4).run()
    assert report.broken == []
    assert report.told
    assert report.in_flight


def test_the_campaign_notices_what_is_gone_or_torn(tmp_path: Path) -> None:
    with Upstream() as upstream:
        upstream.otherwise(answer_by_model)
        gateway = DatabaseGateway(tmp_path, upstream.url, f"sqlite:///{tmp_path}/responses.db")
        campaign = Campaign(gateway, kills=1, seed=1, lifetime=(0.0, 0.0))
        assert campaign.run().broken == []
        first, second, *_ = campaign.report.told
        gateway.change(f"DELETE FROM items WHERE response_id = '{first}' AND role = 'output'")
        gateway.change("PRAGMA foreign_keys = OFF", f"DELETE FROM responses WHERE id = '{second}'")
        with gateway:
            campaign.examine()
    assert (campaign.report.half_stored, campaign.report.lost) == ([first], [second])
    assert campaign.report.integrity


def test_only_a_whole_terminal_event_counts_as_seen() -> None:
    seen = b'event: response.completed\ndata: {"type":"response.completed","response":{"id":"%b"}}\n\n'
    event = seen % RESPONSE_ID.encode()
    assert find_completed(event, stream=True) == RESPONSE_ID
    assert find_completed(event[:-1], stream=True) is None
    body = b"HTTP/1.1 200 OK\r\n\r\n" + json.dumps({"id": RESPONSE_ID}).encode()
    assert find_completed(body, stream=False) == RESPONSE_ID
    assert find_completed(body[:-1], stream=False) is None
