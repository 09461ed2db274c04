"""`gateway openapi`."""

import rich_click as click


@click.command("openapi")
@click.option("--with-keys", is_flag=True, help="Of a gateway that asks callers for keys or tokens.")
def command(*, with_keys: bool) -> None:
    """Print the OpenAPI document of the API.

    It is what a gateway of this version serves at /openapi.json, spread over lines: for generators of clients.
    """
    import msgspec

    from gateway.transport.openapi.docs import ApiDocs

    click.echo(msgspec.json.format(ApiDocs(needs_key=with_keys).document.body))
