"""What is generated is current, complete and valid."""

import json
import re
import tomllib
from pathlib import Path

import jsonschema
import pytest

from gateway.config import GatewayConfig, load_config
from gateway.config.render import render_reference, render_schema, render_toml, written_files
from gateway.config.schema import McpServerConfig
from gateway.config.tree import Leaf, env_name, format_path, gateway_tree, leaves, walk

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "config" / "examples"
LEAVES = [(path, leaf) for path, leaf in leaves(gateway_tree())]
NAMES = [format_path(path) for path, _ in LEAVES]


@pytest.fixture(scope="module")
def validator():
    schema = json.loads(render_schema())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", list(written_files()), ids=str)
def test_the_committed_file_is_current(path):
    committed = (ROOT / path).read_bytes()
    assert committed == written_files()[path].encode(), "run `python -m gateway.config.render`"


def test_every_setting_says_what_it_is():
    assert [format_path(path) for path, leaf in LEAVES if not leaf.description.endswith(".")] == []


def test_the_template_is_the_default_configuration(toml):
    loaded = load_config(toml(render_toml()))
    assert loaded.config == load_config().config
    assert loaded.warnings == ()
    assert render_toml().startswith("#:schema ./gateway.schema.json\n")


def test_uncommenting_the_template_changes_nothing(toml):
    kept = re.sub(r"^# (\w+ = (?!\"\"))", r"\1", render_toml().partition("# Several inference")[0], flags=re.MULTILINE)
    kept += re.sub(r"^# (\w+ = (?!\"\"))", r"\1", render_toml().partition('["qwen"]')[2], flags=re.MULTILINE)
    loaded = load_config(toml(kept))
    assert loaded.config == load_config().config
    unset = {path for path, origin in loaded.origins.items() if origin.kind == "default"}
    keys = {"upstream.api_key", "upstream.api_key_file", "upstream.ca_file", "upstream.aliases", "storage.url_file"}
    keys |= {
        "oidc.issuer",
        "oidc.ca_file",
        "server.tls_cert_file",
        "server.tls_key_file",
        "telemetry.audit_file",
        "telemetry.capture_header",
    }
    keys |= {"auth.trusted_principal_header", "security.seal_keys", "security.seal_keys_file"}
    keys |= {f"web_search.{name}" for name in ("url", "api_key", "api_key_file", "ca_file")}
    assert unset == keys


def test_the_reference_has_a_heading_and_the_variables_of_every_key():
    page = render_reference()
    headings = set(re.findall(r"^### `(.+)`$", page, flags=re.MULTILINE))
    servers = {f"mcp.servers.LABEL.{name}" for name in McpServerConfig.__struct_fields__}
    assert headings == {*NAMES, *servers, "upstream.aliases"}
    for path, leaf in LEAVES:
        names = [env_name(path), *([leaf.extra["env"]] if "env" in leaf.extra else [])]
        assert f"- Environment: {' or '.join(f'`{name}`' for name in names)}\n" in page


def test_every_documented_variable_is_accepted():
    environ = {env_name(path): written for path, leaf in LEAVES if (written := written_default(leaf)) is not None}
    loaded = load_config(None, environ)
    assert loaded.config == load_config().config
    assert sum(origin.kind == "env" for origin in loaded.origins.values()) == len(environ) > 60


def written_default(leaf: Leaf) -> str | None:
    if leaf.default is None:
        return None
    if leaf.secret:
        return leaf.default.reveal()
    return leaf.default if isinstance(leaf.default, str) else json.dumps(leaf.default)


@pytest.mark.parametrize(
    "text",
    [
        "",
        render_toml(),
        "responses = { max_retained_bytes = 5, max_stream_event_bytes = '8 MiB' }",
        "server = { drain_seconds = '5m', commit_after_seconds = 0, keepalive_seconds = 1.5 }",
        "upstreams = { a = { aliases = { x = 'y' }, api_key_file = '/k' } }",
        "storage.url = 'postgresql://h/d'",
        *[path.read_text(encoding="utf-8") for path in sorted(EXAMPLES.glob("*.toml"))],
    ],
)
def test_the_schema_accepts(validator, text):
    validator.validate(tomllib.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        "servr.port = 1",
        "server.prot = 1",
        "server.port = 70000",
        "server.port = '9000'",
        "responses.max_retained_bytes = 0",
        "responses.max_retained_bytes = '8 meg'",
        "responses.max_retained_bytes = 1.5",
        "server.drain_seconds = -1",
        "server.drain_seconds = '1w'",
        "upstream.dialect = 'vlm'",
        "upstream.api_key = ''",
        "upstream.allow_fields = ['metadata']",
        "upstream.aliases = { x = 1 }",
    ],
)
def test_the_schema_refuses_what_the_gateway_refuses(validator, problems, text):
    assert not validator.is_valid(tomllib.loads(text))
    assert problems(text)


def test_the_schema_knows_every_default(validator):
    definitions = {name.lower(): definition for name, definition in validator.schema["$defs"].items()}
    for path, leaf in LEAVES:
        *sections, key = path
        entry = definitions[f"{sections[-1].replace('_', '')}config"]["properties"][key]
        default = leaf.default.reveal() if leaf.secret and leaf.default else leaf.default
        assert entry["default"] == (list(default) if isinstance(default, tuple) else default)
        assert entry["description"] == leaf.description


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.toml")))
def test_an_example_loads_without_a_warning(name):
    loaded = load_config(EXAMPLES / name)
    assert loaded.warnings == ()
    assert any(origin.kind == "file" for origin in loaded.origins.values())


def test_walking_a_configuration_meets_every_key():
    config = GatewayConfig(upstream=load_config().config.upstream_map()["default"])
    assert {format_path(path) for path, _, _ in walk(gateway_tree(), config)} == {*NAMES, "upstream.aliases"}
