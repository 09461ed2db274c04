"""A gateway that believes an issuer: over HTTP and WebSockets, with keys that change and an issuer that is away."""

import json
import time
from contextlib import closing

import pytest
from harness.client import Client
from harness.engine import says
from harness.issuer import AUDIENCE, ServedIssuer
from harness.processes import Gateway
from harness.websocket import HandshakeRefused, WebSocket

MODEL = "oidc"


def settings(issuer, **changed):
    chosen = {"jwks_refresh_interval_seconds": "0.05", "leeway_seconds": "0", **changed}
    oidc = {f"oidc.{name}": value for name, value in chosen.items()}
    oidc["upstream.passthrough"] = '["/v1/embeddings"]'
    return {"auth.mode": "oidc", "oidc.issuer": issuer.url, "oidc.audiences": json.dumps([AUDIENCE]), **oidc}


@pytest.fixture(scope="module")
def issuer():
    with ServedIssuer() as running:
        yield running


@pytest.fixture(scope="module")
def guarded(issuer, upstream, tmp_path_factory):
    """A gateway that takes the issuer's tokens."""
    upstream.script(MODEL, says("hello"))
    with Gateway(tmp_path_factory.mktemp("gateway"), upstream.url, settings(issuer)) as running:
        yield running


def bearer(token):
    return {"Authorization": f"Bearer {token}"}


def create(gateway, token=None, **fields):
    with closing(Client(gateway.port)) as client:
        return client.create({"model": MODEL, "input": "hi", **fields}, bearer(token) if token else None)


def test_a_token_opens_the_door_and_names_the_owner(guarded, issuer):
    stored = create(guarded, issuer.token(sub="alice"))
    assert stored.status == 200, stored.body
    with closing(Client(guarded.port)) as client:
        path = f"/v1/responses/{stored.json['id']}"
        assert client.call("GET", path, headers=bearer(issuer.token(sub="alice"))).status == 200
        assert client.call("GET", path, headers=bearer(issuer.token(sub="bob"))).status == 404


@pytest.mark.parametrize("token", [None, "rubbish", "expired"])
def test_no_token_and_a_bad_one_are_refused_in_the_shape_of_the_api(guarded, issuer, token):
    answer = create(guarded, issuer.token(exp=int(time.time()) - 1) if token == "expired" else token)
    assert answer.status == 401
    assert answer.error["code"] == "invalid_api_key"
    assert answer.error["type"] == "invalid_request_error"
    assert answer.headers["www-authenticate"] == ('Bearer error="invalid_token"' if token else "Bearer")


def test_a_websocket_is_refused_before_it_is_one(guarded, issuer):
    with pytest.raises(HandshakeRefused) as caught:
        WebSocket(guarded.port)
    assert caught.value.answer.status == 401
    with WebSocket(guarded.port, headers=bearer(issuer.token())) as socket:
        socket.create(MODEL)
        assert socket.events_until_terminal()[-1]["type"] == "response.completed"


def test_a_token_that_expires_on_an_open_socket_starts_nothing_more(guarded, issuer):
    expiry = time.time() + 1.5
    with WebSocket(guarded.port, headers=bearer(issuer.token(exp=expiry))) as socket:
        socket.create(MODEL)
        assert socket.events_until_terminal()[-1]["type"] == "response.completed"
        time.sleep(max(0.0, expiry - time.time()))
        socket.create(MODEL, stream_id="late")
        (refusal,) = socket.events_until_terminal("late")
        assert (refusal["type"], refusal["status"], refusal["error"]["code"]) == ("error", 401, "invalid_token")


def test_what_passes_through_needs_a_token_too(guarded, issuer, upstream):
    async def embed(request, reply):
        await reply.json([0.5])

    upstream.route("/v1/embeddings", embed)
    with closing(Client(guarded.port)) as client:
        assert client.call("POST", "/v1/embeddings", b"{}").status == 401
        before = len(upstream.requests)
        assert client.call("POST", "/v1/embeddings", b"{}", bearer(issuer.token())).json == [0.5]
        assert "authorization" not in upstream.requests[before].headers


def test_a_new_key_counts_without_a_restart(guarded, issuer):
    assert create(guarded, issuer.token()).status == 200
    issuer.add_key("rotated", "RS256")
    time.sleep(0.06)  # the interval in which the issuer is asked once
    assert create(guarded, issuer.token(kid="rotated")).status == 200


def test_an_issuer_that_is_away_at_the_start_stops_nothing_but_its_callers(start_gateway):
    with ServedIssuer() as issuer:
        issuer.broken = True
        gateway = start_gateway(settings(issuer))
        token = issuer.token()
        answer = create(gateway, token, model="nobody")
        assert (answer.status, answer.error["code"]) == (503, "server_is_overloaded")
        assert int(answer.headers["retry-after"]) >= 1
        line = json.loads(gateway.await_log("keys cannot be fetched"))
        assert (line["level"], line["logger"]) == ("warning", "gateway.oidc")
        issuer.broken = False
        deadline = time.monotonic() + 20
        while create(gateway, token, model="nobody").status != 404 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert create(gateway, token, model="nobody").status == 404
        assert token not in gateway.log
        assert token.split(".")[2] not in gateway.log
