import re
from pathlib import Path

from gateway.telemetry.names import spans

PAGE = (Path(__file__).parents[2] / "docs/reference/traces.md").read_text()
NAMES = {name: value for name, value in vars(spans).items() if name.isupper()}


def test_the_reference_lists_every_name_of_spans_and_no_other():
    listed = set(re.findall(r"`((?:gen_ai|gateway|http|url|server|error|openai|mcp|jsonrpc)\.[a-z_.]+)`", PAGE))
    named = {value for name, value in NAMES.items() if name.startswith(("ATTR_", "EVENT_"))}
    assert listed == named
    for name in ("SPAN_CREATE", "AGENT_OPERATION", "CANCELLED_BY_CLIENT", "CANCELLED_BY_GATEWAY"):
        assert f"`{NAMES[name]}`" in PAGE


def test_no_name_stands_for_two_things():
    assert len(set(NAMES.values())) == len(NAMES)
