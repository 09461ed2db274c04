"""Which paths may be passed on."""

import pytest

from gateway.config.paths import OWN_PATHS, parse_paths
from gateway.transport.openapi.docs import DOCS_ROUTES
from gateway.transport.routes import RESPONSES_PATH, ROUTES


def test_paths_of_inference_servers_are_taken():
    paths = ["/v1/chat/completions", "/tokenize", "/v1/audio/transcriptions", "/v1/responses-x", "/a.b/~c_d"]
    assert parse_paths(paths) == tuple(paths)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "v1/embeddings",
        "/v1/embeddings/",
        "/v1//embeddings",
        "/v1/../embeddings",
        "/./embeddings",
        "/v1/embeddings?x=1",
        "/v1/embeddings#x",
        "/v1/%65mbeddings",
        "/v1/{path}",
        "/v1/em beddings",
        "/v1/émbeddings",
        "http://127.0.0.1/v1/embeddings",
    ],
)
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ValueError, match="is no path"):
        parse_paths([path])


@pytest.mark.parametrize("path", [*OWN_PATHS, "/v1/responses/resp_1", "/v1/models/m", "/docs/page"])
def test_the_gateways_own_paths_are_refused(path):
    with pytest.raises(ValueError, match="answered by the gateway itself"):
        parse_paths([path])


@pytest.mark.parametrize("value", ["/v1/embeddings", {"/v1/embeddings": 1}, [1], None])
def test_what_is_no_array_of_paths_is_refused(value):
    with pytest.raises(ValueError, match="array of paths"):
        parse_paths(value)


def test_every_route_of_the_gateway_is_among_its_own_paths():
    routes = [RESPONSES_PATH, *(path for route in (*ROUTES, *DOCS_ROUTES) for path in route.paths)]
    assert len(routes) > 8
    assert [path for path in routes if not path.startswith(OWN_PATHS)] == []
