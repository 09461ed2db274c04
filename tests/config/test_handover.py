from gateway.config import load_config
from gateway.config.handover import pack, unpack
from gateway.config.schema import GatewayConfig


def test_the_defaults_arrive_as_they_are():
    assert unpack(pack(GatewayConfig())) == GatewayConfig()


FILE = """
storage.url = "postgresql://u:secret@h/d"

[server]
workers = 3
drain_seconds = "90s"
allowed_hosts = ["a.example"]
max_request_body_bytes = "3MiB"

[upstreams.a]
url = "http://h"
models = ["m"]
aliases = { s = "m" }
api_key = "k"
allow_fields = ["priority"]

[upstreams.b-c]
url = "http://i"
models = ["n"]
forward_headers = ["x-a"]
"""


def test_everything_that_can_be_set_arrives(tmp_path):
    file = tmp_path / "gateway.toml"
    file.write_text(FILE)
    config = load_config(file).config
    arrived = unpack(pack(config))
    assert arrived == config
    assert arrived.storage.url.reveal() == "postgresql://u:secret@h/d"
    assert arrived.upstreams["a"].api_key.reveal() == "k"
    assert "secret" not in repr(arrived)
