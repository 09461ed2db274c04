"""Precedence, origins, secrets, and all problems at once."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import ConfigError, GatewayConfig, load_config
from gateway.config.tree import env_name, format_path, gateway_tree, leaves

ROOT = gateway_tree()
SIZES = [
    ("responses.max_retained_bytes", "AGENTIC_MAX_RETAINED_RESPONSE_BYTES"),
    ("responses.max_upstream_json_bytes", "AGENTIC_MAX_UPSTREAM_JSON_BYTES"),
    ("responses.max_upstream_sse_line_bytes", "AGENTIC_MAX_UPSTREAM_SSE_LINE_BYTES"),
    ("responses.max_stream_event_bytes", "AGENTIC_MAX_STREAM_EVENT_BYTES"),
]


def private(path, content: bytes):
    path.write_bytes(content)
    path.chmod(0o600)
    return path


def test_without_any_source_everything_is_default(load):
    loaded = load()
    assert loaded.config == GatewayConfig(upstream=loaded.config.upstream_map()["default"])
    assert {str(origin) for origin in loaded.origins.values()} == {"default"}
    assert {format_path(path) for path, _ in leaves(ROOT)} <= set(loaded.origins)
    assert loaded.warnings == ()


def test_each_key_takes_its_strongest_source(load):
    text = "[server]\nport = 1\nmax_connections = 2\ndrain_seconds = 3\n"
    env = {"GATEWAY_SERVER__MAX_CONNECTIONS": "20", "GATEWAY_SERVER__DRAIN_SECONDS": "30"}
    loaded = load(text, env, "server.drain_seconds=300s")
    server = loaded.config.server
    assert (server.port, server.max_connections, server.drain_seconds) == (1, 20, 300.0)
    origins = [str(loaded.origins[f"server.{key}"]) for key in ("port", "max_connections", "drain_seconds", "host")]
    assert origins == [f"{loaded.file}:2", "env GATEWAY_SERVER__MAX_CONNECTIONS", "--set", "default"]


def test_the_last_of_two_set_arguments_wins(load):
    assert load(None, None, "server.port=1", "server.port=2").config.server.port == 2


def test_the_short_and_the_long_form_of_upstreams(load):
    assert list(load().config.upstream_map()) == ["default"]
    assert load('upstream.url = "http://a/v1"').config.upstream_map()["default"].url == "http://a"
    several = load('[upstreams.a]\n[upstreams.b]\nmodels = ["m"]').config
    assert list(several.upstream_map()) == ["a", "b"]
    assert several.upstream is None


@pytest.mark.parametrize("bad", ["0", "-1", "1.5", "8 meg", "true", "", "[1]", "0MiB"])
@pytest.mark.parametrize(("key", "alias"), SIZES)
def test_a_bad_size_names_key_value_and_source(problems, key, alias, bad):
    for name in (alias, "GATEWAY_" + key.upper().replace(".", "__")):
        (finding,) = problems(None, {name: bad})
        assert (finding.path, finding.source) == (key, f"env {name}")
        assert "size" in finding.message
        assert bad.strip("[]") in (finding.value or "")
    toml_value = bad if bad in {"0", "-1", "1.5", "true", "[1]"} else f'"{bad}"'
    (finding,) = problems(f"# first\n{key} = {toml_value}")
    assert finding.path == key
    assert finding.source.endswith(":2")


@pytest.mark.parametrize(("key", "alias"), SIZES)
def test_both_names_of_a_key_must_agree(load, problems, key, alias):
    derived = "GATEWAY_" + key.upper().replace(".", "__")
    section, name = key.split(".")
    loaded = load(None, {alias: "2MiB", derived: "2097152"})
    assert getattr(getattr(loaded.config, section), name) == 2**21
    assert len(problems(None, {alias: "2MiB", derived: "3 meg"})) == 1
    (finding,) = problems(None, {alias: "2MiB", derived: "3MiB"})
    assert finding.path == key
    assert alias in str(finding)
    assert derived in str(finding)


def test_raising_one_limit_changes_no_other(load):
    default = load().config.responses
    raised = load(None, {"AGENTIC_MAX_RETAINED_RESPONSE_BYTES": "9MiB"}).config.responses
    assert msgspec.structs.replace(raised, max_retained_bytes=default.max_retained_bytes) == default


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("server.port = 70000", "expected a whole number <= 65535"),
        ("server.port = true", "expected a whole number, got a boolean"),
        ('server.port = "9000"', "expected a whole number, got a string"),
        ("server.max_connections = 0", "expected a whole number >= 1"),
        ("server.keepalive_seconds = 0", "expected a number > 0.0"),
        ("server.drain_seconds = -1", "a duration lies between"),
        ("server.drain_seconds = true", "not a duration"),
        ("server.allowed_hosts = [1]", "expected a string"),
        ('upstream.models = [""]', "expected a string of length >= 1"),
        ("upstream.models = 'm'", "expected an array, got a string"),
        ("upstream.dialect = 'vlm'", "expected one of auto, vllm, llamacpp, generic (did you mean vllm?)"),
        ("upstream.allow_fields = ['priorty']", "(did you mean priority?)"),
        ("upstream.allow_fields = 'priority'", "expected an array, got a string"),
        ("admin.enabled = 1", "expected a boolean, got a whole number"),
        ("admin.bind = 'localhost'", "not an address"),
        ("storage.auto_migrate = true", "expected one of auto, always, never"),
        ("storage.busy_timeout_seconds = '2d'", "expected a number <= 86400.0"),
        ("telemetry.log_level = 'INFO'", "expected one of debug, info, warning, error"),
        ("responses.max_json_depth = 1000", "expected a whole number <= 900"),
        ("storage.url_file = ''", "expected a string of length >= 1"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_the_fix(problems, line, message):
    (finding,) = problems(line)
    assert message in finding.message
    assert finding.path == line.partition(" =")[0]
    assert finding.value is not None


def test_every_problem_is_reported_at_once(problems):
    findings = problems(
        "[server]\nprot = 1\nport = -1\n[admin]\nbind = '0.0.0.0:9901'\n[nothing]\n",
        {"GATEWAY_STORAGE__READERS": "0", "GATEWAY_X__Y": "1"},
        "telemetry.log_level=loud",
    )
    assert sorted(finding.path for finding in findings) == [
        "",
        "admin.bind",
        "nothing",
        "server.port",
        "server.prot",
        "storage.readers",
        "telemetry.log_level",
    ]


def test_a_bad_value_is_refused_even_when_a_good_one_overrides_it(problems):
    (finding,) = problems("server.port = 0.5", {"GATEWAY_SERVER__PORT": "9000"})
    assert finding.path == "server.port"


def test_rules_between_keys_stay_silent_about_keys_that_are_wrong_anyway(problems):
    assert [finding.path for finding in problems("admin.bind = '0.0.0.0:9901'\nadmin.allow_remote = 3")] == [
        "admin.allow_remote"
    ]


def test_shown_values_are_short_and_without_passwords(problems):
    (long,) = problems("telemetry.log_level = '" + "x" * 500 + "'")
    assert len(long.value) < 130
    (url,) = problems("upstream.url = 'http://me:hunter2@host'")
    assert url.value == '"http://me:***@host"'


@pytest.mark.parametrize(
    "line", ["upstream.api_key = 12345678", "upstream.api_key = ['hunter2']", "storage.url = 'mysql:hunter2@h'"]
)
def test_a_wrong_secret_is_not_shown(problems, line):
    (finding,) = problems(line)
    assert finding.value == "***"
    assert "hunter2" not in str(finding)


@pytest.mark.parametrize(
    ("content", "secret"),
    [(b"k1\n", "k1"), (b"k1", "k1"), (b"k1\r\n", "k1"), (b" k1 \n", " k1 "), ("kä".encode(), "kä")],
)
def test_a_secret_comes_from_a_file_without_its_last_line_break(tmp_path, load, content, secret):
    file = private(tmp_path / "key", content)
    loaded = load(None, {"GATEWAY_UPSTREAM__API_KEY_FILE": str(file)})
    assert loaded.config.upstream.api_key.reveal() == secret
    assert str(loaded.origins["upstream.api_key"]) == "env GATEWAY_UPSTREAM__API_KEY_FILE"
    assert loaded.warnings == ()


def test_named_upstreams_and_the_database_have_secret_files_too(tmp_path, load):
    key = private(tmp_path / "key", b"k1\n")
    url = private(tmp_path / "url", b"postgresql://u:hunter2@h/d\n")
    loaded = load(f"[upstreams.a]\napi_key_file = '{key}'\n[storage]\nurl_file = '{url}'")
    assert loaded.config.upstreams["a"].api_key.reveal() == "k1"
    assert loaded.config.storage.url.reveal() == "postgresql://u:hunter2@h/d"
    assert "hunter2" not in repr(loaded)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\n", "is empty"),
        (b"a\nb\n", "line break"),
        (b"k\n\n", "line break"),
        (b"\xff", "not UTF-8"),
        (b"x" * 65_537, "more than 65536 bytes"),
    ],
)
def test_a_file_that_holds_no_secret_is_a_problem(tmp_path, problems, content, message):
    file = private(tmp_path / "key", content)
    (finding,) = problems(f"upstream.api_key_file = '{file}'")
    assert finding.path == "upstream.api_key_file"
    assert str(file) in finding.message
    assert message in finding.message


def test_a_file_that_holds_no_database_url_is_a_problem_without_its_content(tmp_path, problems):
    file = private(tmp_path / "url", b"mysql://u:hunter2@h/d")
    (finding,) = problems(f"storage.url_file = '{file}'")
    assert "not a database URL" in finding.message
    assert "hunter2" not in str(finding)


def test_a_secret_file_that_cannot_be_read_is_a_problem(tmp_path, problems):
    assert "No such file" in problems(f"upstream.api_key_file = '{tmp_path / 'none'}'")[0].message
    assert "directory" in problems(f"upstream.api_key_file = '{tmp_path}'")[0].message
    assert "null byte" in problems('upstream.api_key_file = "a\\u0000"')[0].message


def test_a_secret_and_its_file_exclude_each_other_in_one_source(tmp_path, problems):
    file = private(tmp_path / "key", b"k1")
    (finding,) = problems(f"upstream.api_key = 'hunter2'\nupstream.api_key_file = '{file}'")
    assert (finding.path, finding.source.endswith(":2")) == ("upstream.api_key_file", True)
    assert "upstream.api_key is set as well" in finding.message
    assert "gateway.toml:1" in finding.message
    assert "hunter2" not in str(finding)
    names = {"GATEWAY_UPSTREAM__API_KEY": "hunter2", "GATEWAY_UPSTREAM__API_KEY_FILE": str(file)}
    assert [finding.path for finding in problems(None, names)] == ["upstream.api_key_file"]


def test_a_stronger_source_beats_the_file_a_weaker_one_names(load):
    text = "storage.url_file = '/nowhere/url'\n[upstreams.a]\napi_key_file = '/nowhere/key'"
    loaded = load(text, {"GATEWAY_UPSTREAMS__A__API_KEY": "k2"}, "storage.url=sqlite:///other.db")
    assert loaded.config.upstreams["a"].api_key.reveal() == "k2"
    assert loaded.config.upstreams["a"].api_key_file is None
    assert loaded.config.storage.url.reveal() == "sqlite:///other.db"
    assert loaded.config.storage.url_file is None
    assert str(loaded.origins["storage.url"]) == "--set"
    assert str(loaded.origins["storage.url_file"]) == "default"


def test_a_file_named_by_a_stronger_source_beats_the_secret_of_a_weaker_one(tmp_path, load):
    file = private(tmp_path / "key", b"k1\n")
    loaded = load("upstream.api_key = 'k2'", {"GATEWAY_UPSTREAM__API_KEY_FILE": str(file)})
    assert loaded.config.upstream.api_key.reveal() == "k1"
    assert str(loaded.origins["upstream.api_key"]) == "env GATEWAY_UPSTREAM__API_KEY_FILE"


def test_a_bad_secret_is_refused_even_when_a_file_overrides_it(tmp_path, problems):
    file = private(tmp_path / "url", b"sqlite:///a.db")
    (finding,) = problems("storage.url = 'mysql://h'", {"GATEWAY_STORAGE__URL_FILE": str(file)})
    assert (finding.path, finding.value) == ("storage.url", "***")


def test_a_world_readable_secret_file_is_a_warning(tmp_path, load):
    file = private(tmp_path / "key", b"k1")
    file.chmod(0o644)
    (warning,) = load(f"upstream.api_key_file = '{file}'").warnings
    assert (warning.path, str(file) in warning.message) == ("upstream.api_key_file", True)


def test_warnings_accompany_problems():
    with pytest.raises(ConfigError) as caught:
        load_config(None, {}, ["responses.max_stream_event_bytes=512", "server.port=x"])
    assert [finding.path for finding in caught.value.problems] == ["server.port"]
    assert {finding.path for finding in caught.value.warnings} == {"responses.max_stream_event_bytes"}


VARIABLES = st.sampled_from([env_name(path) for path, _ in leaves(ROOT)] + [alias for _, alias in SIZES])
TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["0", "1", "8MiB", "30s", "true", "[]", "{}", "nan", "inf", "1979-05-27", "127.0.0.1:1", "http://a", "::"]
    ),
)


@given(
    environ=st.dictionaries(VARIABLES, TEXTS, max_size=6),
    overrides=st.lists(TEXTS.map("server.port={}".format), max_size=2),
)
def test_whatever_is_written_either_loads_or_is_refused_as_a_whole(environ, overrides):
    loaded, problems = None, ()
    try:
        loaded = load_config(None, environ, overrides)
    except ConfigError as error:
        problems = error.problems
    assert bool(loaded) is not bool(problems)
    assert all(finding.source != "default" for finding in problems)
    if loaded:
        assert {origin.name for origin in loaded.origins.values() if origin.kind == "env"} <= set(environ)
        assert loaded.config.upstream_map()
