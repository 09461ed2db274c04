"""`gateway openapi`."""

import rich_click as click


@click.command("openapi")
def command() -> None:
    """Print the OpenAPI document of the API.

    It is what a gateway of this version serves at /openapi.json, spread over lines: for generators of clients.
    """
    import msgspec

    from gateway.transport.openapi.docs import ApiDocs

    click.echo(msgspec.json.format(ApiDocs().document.body))
