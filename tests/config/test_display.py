from gateway.config import load_config
from gateway.config.display import show_settings, show_tables


def test_settings_are_listed_with_their_origin_and_without_secrets(tmp_path):
    loaded = load_config(
        environ={"GATEWAY_SERVER__DRAIN_SECONDS": "60"}, overrides=["upstream.api_key=hidden", "server.port=9001"]
    )
    shown = show_settings(loaded.config, loaded.origins)
    assert shown["server.port"] == {"value": 9001, "origin": "--set"}
    assert shown["server.drain_seconds"] == {"value": "1m", "origin": "env GATEWAY_SERVER__DRAIN_SECONDS"}
    assert shown["server.host"] == {"value": "127.0.0.1", "origin": "default"}
    assert shown["upstream.api_key"] == {"value": "***", "origin": "--set"}
    assert set(shown) == set(loaded.origins)
    assert show_settings(loaded.config, {})["server.port"] == {"value": 9001, "origin": None}


def test_a_secret_that_was_read_from_a_file_is_left_to_that(tmp_path):
    file = tmp_path / "key"
    file.write_text("hidden")
    file.chmod(0o600)
    upstream = show_tables(load_config(overrides=[f"upstream.api_key_file={file}"]).config)["upstream"]
    assert upstream["api_key_file"] == str(file)
    assert "api_key" not in upstream
