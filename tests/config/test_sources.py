"""File, environment and `--set`: what is placed, what is refused, and which line is to blame."""

from pathlib import Path

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import load_config
from gateway.config.sources import locate_keys

KEYS = st.text(min_size=1, max_size=5)
VALUES = st.one_of(st.integers(-9, 9), st.booleans(), st.text(max_size=8), st.lists(st.text(max_size=5), max_size=3))
DOCUMENTS = st.recursive(VALUES, lambda below: st.dictionaries(KEYS, below, max_size=3), max_leaves=12)


def all_paths(value, path=()):
    if isinstance(value, dict):
        for name, child in value.items():
            yield (*path, name)
            yield from all_paths(child, (*path, name))


@given(st.dictionaries(KEYS, DOCUMENTS, max_size=4), st.booleans())
def test_every_key_has_a_line(document, multiline):
    text = tomli_w.dumps(document, multiline_strings=multiline)
    assert set(locate_keys(text)) >= set(all_paths(document))


def test_lines_point_at_the_start_of_a_statement():
    statements = [
        "top = 1\n# note\n[a]\n\n",
        'list = [\n  "x",\n]\n',
        'long = """\n[no.table]\nnokey = 1\n"""\n',
        "b.c = 2\n[a.d]\ne = { f = 1 }\r\n",
    ]
    text = "".join(statements)
    assert locate_keys(text) == {
        ("top",): 1,
        ("a",): 3,
        ("a", "list"): 5,
        ("a", "long"): 8,
        ("a", "b"): 12,
        ("a", "b", "c"): 12,
        ("a", "d"): 13,
        ("a", "d", "e"): 14,
        ("a", "d", "e", "f"): 14,
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [("[server]\nport 9000\n", 2), ("[server]\nport = 1\nport = 2\n", 3), ("[server", 1), ('x = """\n\n', 3)],
)
def test_malformed_toml_is_a_problem_with_its_line(problems, text, line):
    (finding,) = problems(text)
    assert finding.source.endswith(f"gateway.toml:{line}")
    assert "not valid TOML" in finding.message


@pytest.mark.parametrize("text", ["x = " + "9" * 5000, "x = " + "[" * 100_000])
def test_toml_that_python_cannot_hold_is_a_problem(problems, text):
    assert "not valid TOML" in problems(text)[0].message


def test_a_file_that_cannot_be_read_is_a_problem_beside_others(tmp_path: Path, problems, toml):
    (finding, other) = problems(None, {"GATEWAY_CONFIG": str(tmp_path / "none.toml"), "GATEWAY_SERVER__PORT": "x"})
    assert finding.source == str(tmp_path / "none.toml")
    assert "No such file" in finding.message
    assert other.path == "server.port"
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"# caf\xe9\n")
    assert "UTF-8" in problems(None, {"GATEWAY_CONFIG": str(latin)})[0].message
    assert "directory" in problems(None, {"GATEWAY_CONFIG": str(tmp_path)})[0].message


@pytest.mark.parametrize(
    ("text", "line", "path", "message"),
    [
        ("[server]\nprot = 1", 2, "server.prot", "unknown key (did you mean port?)"),
        ("[servr]\nport = 1", 1, "servr", "unknown section (did you mean server?)"),
        ("[server]\nreaders = 1", 2, "server.readers", "unknown key (did you mean storage.readers?)"),
        ("[server]\nzzz = 1", 2, "server.zzz", "unknown key"),
        ("port = 1", 1, "port", "unknown section (did you mean server.port?)"),
        ("[upstreams.fast]\nurll = 1", 2, "upstreams.fast.urll", "unknown key (did you mean url?)"),
        ("server = 1", 1, "server", "expected a table, got a number"),
        ("[[server]]", 1, "server", "expected a table, got an array"),
        ("upstreams = true", 1, "upstreams", "expected a table, got a boolean"),
        ('[upstreams]\nurl = "x"', 2, "upstreams.url", "expected a table, got a string"),
        ('[upstream]\naliases = "x"', 2, "upstream.aliases", "expected a table, got a string"),
        ('[upstream.aliases]\n"a.b" = 1', 2, 'upstream.aliases."a.b"', "expected a string, got a whole number"),
    ],
)
def test_what_fits_nowhere_is_a_problem(problems, text, line, path, message):
    (finding,) = problems(text)
    assert (finding.path, finding.message) == (path, message)
    assert finding.source.endswith(f"gateway.toml:{line}")


def test_the_value_of_an_unknown_key_is_not_shown(problems):
    findings = problems(
        '[upstream]\napi_kye = "hunter2"', {"GATEWAY_UPSTREAM__API_KYE": "hunter2"}, "upstream.key=hunter2"
    )
    assert len(findings) == 3
    assert "hunter2" not in str(findings)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("GATEWAY_SERVER__PORT", "9001", ("server", "port", 9001)),
        ("GATEWAY_SERVER__HOST", "localhost", ("server", "host", "localhost")),
        ("GATEWAY_SERVER__MAX_REQUEST_BODY_BYTES", "8388608", ("server", "max_request_body_bytes", 2**23)),
        ("GATEWAY_SERVER__MAX_REQUEST_BODY_BYTES", "8MiB", ("server", "max_request_body_bytes", 2**23)),
        ("GATEWAY_SERVER__MAX_REQUEST_BODY_BYTES", '"8MiB"', ("server", "max_request_body_bytes", 2**23)),
        ("GATEWAY_SERVER__DRAIN_SECONDS", "2.5", ("server", "drain_seconds", 2.5)),
        ("GATEWAY_SERVER__DRAIN_SECONDS", "5m", ("server", "drain_seconds", 300.0)),
        ("GATEWAY_ADMIN__ENABLED", "false", ("admin", "enabled", False)),
        ("GATEWAY_SERVER__ALLOWED_HOSTS", '["a", "b"]', ("server", "allowed_hosts", ("a", "b"))),
        ("GATEWAY_RESPONSES__REASONING_SUMMARY", "both", ("responses", "reasoning_summary", "both")),
        ("GATEWAY_SERVER", "{ port = 9001 }", ("server", "port", 9001)),
        ("AGENTIC_MAX_RETAINED_RESPONSE_BYTES", "1MiB", ("responses", "max_retained_bytes", 2**20)),
        ("AGENTIC_MAX_UPSTREAM_JSON_BYTES", "32MiB", ("responses", "max_upstream_json_bytes", 2**25)),
        ("AGENTIC_MAX_UPSTREAM_SSE_LINE_BYTES", "32MiB", ("responses", "max_upstream_sse_line_bytes", 2**25)),
        ("AGENTIC_MAX_STREAM_EVENT_BYTES", "8MiB", ("responses", "max_stream_event_bytes", 2**23)),
    ],
)
def test_a_variable_sets_its_key(load, name, text, value):
    section, key, expected = value
    loaded = load(None, {name: text})
    assert getattr(getattr(loaded.config, section), key) == expected
    assert str(loaded.origins[f"{section}.{key}"]) == f"env {name}"


def test_variables_name_entries_by_upper_cased_labels(load):
    config = load(
        '[upstreams.fast-gpu]\nmodels = ["a"]\n[upstreams.slow]\nmodels = ["b"]',
        {
            "GATEWAY_UPSTREAMS__FAST_GPU__URL": "http://fast",
            "GATEWAY_UPSTREAMS__SLOW__ALIASES__TINY": "b",
            "GATEWAY_UPSTREAMS__NEW__MODELS": '["c"]',
        },
    ).config
    assert {name: (up.url, up.models) for name, up in config.upstreams.items()} == {
        "fast-gpu": ("http://fast", ("a",)),
        "slow": ("http://127.0.0.1:8000", ("b",)),
        "new": ("http://127.0.0.1:8000", ("c",)),
    }
    assert config.upstreams["slow"].aliases == {"tiny": "b"}


def test_an_entry_without_keys_exists(load):
    loaded = load(
        "[upstreams.fast-gpu]\nmodels = ['a']\n[upstreams.big-gpu]", {"GATEWAY_UPSTREAMS__BIG_GPU__MODELS": '["b"]'}
    )
    assert list(loaded.config.upstreams) == ["fast-gpu", "big-gpu"]
    assert list(load(None, None, "upstreams.a = {}").config.upstreams) == ["a"]
    assert list(load(None, {"GATEWAY_UPSTREAMS__A": "{}"}).config.upstreams) == ["a"]


def test_entries_merge_key_by_key(load):
    loaded = load(
        '[upstream.aliases]\na = "file"\nb = "file"',
        {"GATEWAY_UPSTREAM__ALIASES": '{ b = "env", c = "env" }'},
        'upstream.aliases."d.e"=cli',
    )
    assert loaded.config.upstream_map()["default"].aliases == {"a": "file", "b": "env", "c": "env", "d.e": "cli"}
    assert str(loaded.origins['upstream.aliases."d.e"']) == "--set"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("GATEWAY_SERVER__PROT", " (did you mean GATEWAY_SERVER__PORT?)"),
        ("GATEWAY_SERVER_PORT", " (did you mean GATEWAY_SERVER__PORT?)"),
        ("GATEWAY_UPSTREAMS__FAST__URLL", " (did you mean GATEWAY_UPSTREAMS__FAST__URL?)"),
        ("GATEWAY_SERVER__PORT__X", " (did you mean GATEWAY_SERVER__PORT?)"),
        ("GATEWAY_Q", ""),
    ],
)
def test_an_unknown_variable_is_a_problem(problems, name, hint):
    (finding,) = problems(None, {name: "9000"})
    assert (finding.source, finding.message) == (f"env {name}", f"unknown variable{hint}")


def test_foreign_variables_are_left_alone(load):
    links = {
        "GATEWAY_SERVICE_HOST": "10.0.0.1",
        "GATEWAY_SERVICE_PORT": "9000",
        "GATEWAY_SERVICE_PORT_HTTP": "9000",
        "GATEWAY_PORT": "tcp://10.0.0.1:9000",
        "GATEWAY_PORT_9000_TCP": "tcp://10.0.0.1:9000",
        "GATEWAY_PORT_9000_TCP_ADDR": "10.0.0.1",
        "GATEWAY_POSTGRES_SERVICE_HOST": "10.0.0.2",
        "GATEWAY_POSTGRES_PORT": "tcp://10.0.0.2:5432",
    }
    assert load(None, {**links, "AGENTIC_OTHER": "x", "PATH": "/bin", "GATEWAY_CONFIG": ""}).config == load().config


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("server.port", "argument 2 is not section.key=value"),
        ("=1", "argument 2 is not section.key=value"),
        ("a b=1", "argument 2 is not section.key=value"),
        ("server.host\nx=1", "argument 2 is not section.key=value"),
        ("#=1", "argument 2 is not section.key=value"),
        ("server.prot=1", "unknown key (did you mean port?)"),
        ("srver.port=1", "unknown section (did you mean server?)"),
        ("server.port.x=1", "unknown key"),
        ("server=1", "expected a table, got a number"),
        ("server.port=1\nserver.host = 2", "expected a whole number, got a string"),
    ],
)
def test_a_bad_set_argument_is_a_problem(problems, override, message):
    (finding,) = problems(None, None, "storage.readers=2", override)
    assert (finding.source, finding.message) == ("--set", message)


def test_a_set_argument_may_hold_equals_signs(load):
    assert load(None, None, "upstream.api_key=a=b=").config.upstream.api_key.reveal() == "a=b="


def test_the_file_of_the_environment_yields_to_the_argument(tmp_path, toml):
    named = tmp_path / "named.toml"
    named.write_text("server.port = 1111", encoding="utf-8")
    environ = {"GATEWAY_CONFIG": str(named)}
    assert load_config(None, environ).config.server.port == 1111
    assert load_config(toml("server.port = 2222"), environ).config.server.port == 2222
    assert load_config(None, environ).file == named
    assert load_config(None, {}).file is None
