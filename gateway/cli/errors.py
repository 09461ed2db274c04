"""How every command says that it cannot go on."""

import rich_click as click


def print_error(message: str) -> None:
    """Write an error to stderr, on a line of its own."""
    click.secho(f"error: {message}", fg="red", err=True)


def describe_refusal(error: click.ClickException) -> str:
    """Return what is wrong with a command line, and where to read on."""
    message = error.format_message()
    if not isinstance(error, click.UsageError) or error.ctx is None:
        return message
    return f"{message.rstrip('.')}; see `{error.ctx.command_path} --help`"
