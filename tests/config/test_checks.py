"""Rules and surprises between several keys."""

import pytest
import trustme

from gateway.transport.hosts import HostPolicy


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("admin.bind = '0.0.0.0:9901'", "admin.bind", "allow_remote = true"),
        ("admin.bind = '[::]:9901'", "admin.bind", "allow_remote = true"),
        ("admin.bind = 'admin.internal:9901'", "admin.bind", "allow_remote = true"),
        ("admin.bind = '127.0.0.1:9000'", "admin.bind", "also server.port"),
        ("server.port = 9901", "server.port", "also server.port"),
        (
            "auth.mode = 'api_keys'\nserver = { host = '0.0.0.0', port = 9901, allowed_hosts = ['a'] }",
            "server.port",
            "also server.port",
        ),
        ("server.host = '0.0.0.0'", "server.host", "nobody is asked for a key"),
        ("server.host = 'llm.internal'\nauth.mode = 'none'", "server.host", "allow_unauthenticated = true"),
        ("server.workers = 2", "server.workers", "a database that they can share"),
        ("server.workers = 2\nstorage.url = 'sqlite:///a.db'", "server.workers", "postgresql://"),
        ("auth.trusted_principal_header = 'X-User'", "auth.trusted_principal_header", "no proxy is trusted"),
        ("auth.trusted_proxies = ['127.0.0.1']", "auth.trusted_proxies", "nothing is believed"),
        (
            """auth = { trusted_principal_header = 'x-user', trusted_proxies = ['::1'] }
            upstream.forward_headers = ['X-User']""",
            "upstream.forward_headers",
            "anybody may send",
        ),
        ("[upstream]\nmodels = ['m']\n[upstreams.a]", "upstream.models", "both set"),
        ("[upstreams.'a b']", 'upstreams."a b"', "cannot name"),
        ("[upstreams.a__b]", "upstreams.a__b", "cannot name"),
        ("[upstreams.'ä']", 'upstreams."ä"', "cannot name"),
        ("multi_agent.wait_min_ms = 40000", "multi_agent.wait_min_ms", "above wait_default_ms (30000)"),
        ("multi_agent.wait_max_ms = 20000", "multi_agent.wait_max_ms", "above wait_max_ms (20000)"),
        (
            "multi_agent.max_concurrent_subagents_ceiling = 2",
            "multi_agent.max_concurrent_subagents_ceiling",
            "above max_concurrent_subagents_ceiling (2)",
        ),
        ("[upstreams.a-b]\nmodels = ['x']\n[upstreams.a_b]\nmodels = ['y']", "upstreams.a_b", "rename"),
    ],
)
def test_a_combination_that_cannot_work_is_a_problem(problems, text, path, message):
    (finding,) = problems(text)
    assert finding.path == path
    assert message in finding.message


@pytest.mark.parametrize("bad", ["url = 3", "url = 'ftp://a'", "models = 'm'"])
def test_one_and_several_upstreams_are_reported_beside_other_problems(problems, bad):
    found = [finding.message for finding in problems(f"[upstream]\n{bad}\n[upstreams.a]\n[server]\nport = 'x'")]
    assert len(found) == 3
    assert any("both set" in message for message in found)


def test_a_key_that_no_header_carries(problems):
    (finding,) = problems("upstream.api_key = 'Ključ'")
    assert finding.path == "upstream.api_key"
    assert "keys are ASCII" in finding.message
    assert "Klju" not in str(finding)


def test_api_key_and_callers_authorization_exclude_each_other(problems):
    (finding,) = problems("upstream = { api_key = 'k', forward_headers = ['Authorization'] }")
    assert "forward only one" in finding.message


@pytest.mark.parametrize(
    "text",
    [
        "admin.bind = '[::1]:9901'",
        "server.workers = 2\nstorage.url = 'postgresql://h/d'",
        "admin.bind = 'localhost:9901'",
        "admin = { bind = '0.0.0.0:9901', allow_remote = true }",
        "admin = { bind = '0.0.0.0:9901', enabled = false }",
        "admin = { bind = '127.0.0.1:9000', enabled = false }",
        "[server]\nport = 0\n[admin]\nbind = '127.0.0.1:0'",
        "auth.mode = 'api_keys'\nserver = { host = '0.0.0.0', allowed_hosts = ['gateway'] }",
        (
            "auth.mode = 'oidc'\noidc = { issuer = 'https://id.example', audiences = ['g'] }\n"
            "server = { host = '10.0.0.1', allowed_hosts = ['10.0.0.1'] }"
        ),
        "auth.allow_unauthenticated = true\nserver = { host = '0.0.0.0', allowed_hosts = ['a'] }",
        "server.host = '::1'",
        "auth = { trusted_principal_header = 'x-user', trusted_proxies = ['127.0.0.1', '10.0.0.0/8'] }",
        "[responses]\nmax_stream_event_bytes = '8MiB'",
        "[responses]\nmax_retained_bytes = '1MiB'",
        "[upstreams.a]\nmodels = ['x']\n[upstreams.b]\nmodels = ['y']",
        "upstream = { models = ['m'], aliases = { a = 'm' } }",
        "upstream.forward_headers = ['x-team']",
        "upstream.total_timeout_seconds = '2h'",
        "upstream.tls_verify = false",
        "upstream = { url = 'https://a', tls_verify = true }",
    ],
)
def test_a_sound_combination_gives_no_warning(load, text):
    assert load(text).warnings == ()


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("responses.max_stream_event_bytes = '4MiB'", "responses.max_stream_event_bytes", "(4MiB) is below"),
        ("responses.max_retained_bytes = '9MiB'", "responses.max_retained_bytes", "below max_retained_bytes (9MiB)"),
        (
            "responses = { max_stream_event_bytes = 1023, max_retained_bytes = 1000 }",
            "responses.max_stream_event_bytes",
            "below 1 KiB",
        ),
        ("responses.max_upstream_json_bytes = '8MB'", "responses.max_upstream_json_bytes", "a JSON answer"),
        ("responses.max_upstream_sse_line_bytes = '8MB'", "responses.max_upstream_sse_line_bytes", "a streamed answer"),
        (
            "storage.history_max_bytes = '8MB'\nmulti_agent.max_tree_bytes = '8MB'",
            "storage.history_max_bytes",
            "largest responses are stored but can never be continued",
        ),
        ("storage.history_max_bytes = '20MB'", "storage.history_max_bytes", "largest trees are stored"),
        ("multi_agent.max_tree_bytes = '1GiB'", "multi_agent.max_tree_bytes", "largest trees are stored"),
        ("multi_agent.max_tree_bytes = '64KiB'", "multi_agent.max_tree_bytes", "longest messages"),
        ("multi_agent.max_rounds_per_turn = 513", "multi_agent.max_rounds_per_turn", "never reached"),
        ("auth.mode = 'api_keys'\nserver.host = '0.0.0.0'", "server.host", "server.allowed_hosts"),
        ("upstream.total_timeout_seconds = 400", "upstream.total_timeout_seconds", "first_byte_timeout_seconds"),
        ("upstream.idle_timeout_seconds = '2h'", "upstream.idle_timeout_seconds", "never takes effect"),
        ("upstream = { models = ['m'], aliases = { a = 'n' } }", "upstream.aliases.a", "not among the models"),
        ("upstream.forward_headers = ['Cookie']", "upstream.forward_headers", "credentials"),
        ("upstream = { url = 'https://a', tls_verify = false }", "upstream.tls_verify", "can read and change"),
        ("[upstreams.a]\n[upstreams.b]", "upstreams.b", "every model"),
        ("[upstreams.a]\nmodels = ['m']\n[upstreams.b]\naliases = { m = 'n' }", "upstreams.b", "the model 'm'"),
        ("[websocket]\nmax_message_bytes = '20MiB'", "websocket.max_message_bytes", "always refused with 429"),
        ("[websocket]\nmax_session_bytes = '1MiB'", "websocket.max_session_bytes", "never kept"),
        ("[websocket]\nmax_outstanding = 4", "websocket.max_outstanding", "never reached"),
    ],
)
def test_a_surprising_combination_is_a_warning(load, text, path, message):
    (warning,) = load(text).warnings
    assert warning.path == path
    assert message in warning.message
    assert "gateway.toml:" in warning.source


@pytest.mark.parametrize(("content", "reason"), [(None, "No such file or directory"), ("junk", "no certificates")])
@pytest.mark.parametrize("url", ["https://a", "http://a"])
def test_a_file_of_authorities_that_cannot_be_used(problems, tmp_path, content, reason, url):
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    (finding,) = problems(f"upstream = {{ url = '{url}', ca_file = '{file}' }}")
    assert finding.path == "upstream.ca_file"
    assert finding.message.startswith(f"{file}: ")
    assert reason in finding.message


def test_a_file_of_authorities(load, tmp_path):
    file = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(file)
    assert load(f"[upstream]\nurl = 'https://a'\nca_file = '{file}'").warnings == ()
    for more, message in (
        ("url = 'http://a'", "not https"),
        ("url = 'https://a'\ntls_verify = false", "tls_verify is"),
    ):
        found = load(f"[upstream]\nca_file = '{file}'\n{more}").warnings
        assert [(str(one.path), message in one.message) for one in found][-1] == ("upstream.ca_file", True)


def test_the_other_section_is_named_when_the_first_is_blamed(load):
    sizes = ("retained", "stream_event", "upstream_json", "upstream_sse_line")
    (warning,) = load("[responses]\n" + "".join(f"max_{size}_bytes = '65MiB'\n" for size in sizes)).warnings
    assert warning.path == "responses.max_retained_bytes"
    assert warning.message.startswith("storage.history_max_bytes is below responses.max_retained_bytes")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "10.0.0.5", "gateway.internal"])
@pytest.mark.parametrize("listed", [[], ["gateway.example"]])
def test_a_gateway_that_accepts_any_host_says_so(load, host, listed):
    text = f"auth.mode = 'api_keys'\n[server]\nhost = '{host}'\nallowed_hosts = {listed}"
    warnings = load(text).warnings
    assert (
        any("any Host header" in warning.message for warning in warnings) is HostPolicy(host, listed).accepts_any_host
    )


SOUND = "auth.mode = 'oidc'\noidc.issuer = 'https://id.example'\noidc.audiences = ['gateway']\n"


@pytest.mark.parametrize(
    ("text", "lack"),
    [
        (SOUND.replace("oidc.issuer", "#"), "oidc.issuer is empty"),
        (SOUND.replace("['gateway']", "[]"), "oidc.audiences is empty"),
        (SOUND + "oidc.algorithms = []", "oidc.algorithms is empty"),
        (SOUND + "oidc.principal_claim = ''", "oidc.principal_claim is empty"),
        (SOUND + "oidc.ca_file = '/nowhere.pem'", "/nowhere.pem"),
        (SOUND + "oidc.algorithms = ['HS256']", "expected one of RS256"),
        (SOUND.replace("https:", "http:"), "is not https"),
    ],
)
def test_tokens_that_could_not_be_checked_are_a_problem(problems, text, lack):
    (finding,) = problems(text)
    assert lack in finding.message


def test_the_issuer_is_checked_only_where_it_counts(load):
    assert load("oidc.audiences = []\noidc.ca_file = '/nowhere.pem'").config.oidc.audiences == ()
    assert load(SOUND).config.oidc.audiences == ("gateway",)
