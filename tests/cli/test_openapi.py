import json

from click.testing import CliRunner

from gateway.cli.openapi import command
from gateway.transport.openapi.docs import ApiDocs


def test_the_document_is_printed_as_it_is_served():
    result = CliRunner().invoke(command)
    assert result.exit_code == 0
    assert json.loads(result.output) == json.loads(ApiDocs().document.body)
    assert result.output.startswith('{\n  "openapi": "3.1.0",\n')


def test_the_document_of_a_gateway_that_asks_for_keys():
    document = json.loads(CliRunner().invoke(command, ["--with-keys"]).output)
    assert document == json.loads(ApiDocs(needs_key=True).document.body)
    assert document["components"]["securitySchemes"] == {"bearer": {"type": "http", "scheme": "bearer"}}
