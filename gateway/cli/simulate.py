"""`gateway simulate`."""

import asyncio
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from gateway.cli.errors import print_error

if TYPE_CHECKING:
    from gateway.upstream.simulated import AgentScripts, ScriptedReply


@click.command("simulate")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--script",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="JSON list of replies that come before the models' own.",
)
@click.option(
    "--agents",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="TOML file with what each agent of a run of several is told to do.",
)
@click.option(
    "--itl",
    default=0.02,
    show_default=True,
    type=click.FloatRange(0, 60),
    help="Seconds between tokens.",
)
def command(host: str, port: int, script: Path | None, agents: Path | None, itl: float) -> None:
    """Serve a scripted inference server that behaves like vLLM, and misbehaves on request.

    The model name chooses the answer: `sim`, `sim-think`, `sim-tool`, `sim-cut`, `fixture-8000-1` and more; GET
    /v1/models lists them all.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S", stream=sys.stderr)
    # A cut answer is what some models are for; the server would report each as an error.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    replies = _load_script(script) if script is not None else []
    scripts = _load_agents(agents) if agents is not None else {}
    try:
        asyncio.run(_serve(host, port, replies, scripts, itl))
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error
        print_error(f"{host}:{port} cannot be listened on ({reason}); choose another --port")
        raise SystemExit(1) from error


def _load_script(script: Path) -> list["ScriptedReply"]:
    from gateway.upstream.simulated import load_script

    try:
        return load_script(script)
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{script}: {error}", param_hint="--script") from error


def _load_agents(path: Path) -> "AgentScripts":
    from gateway.upstream.simulated import load_agents

    try:
        return load_agents(path)
    except (OSError, ValueError) as error:
        raise click.BadParameter(f"{path}: {error}", param_hint="--agents") from error


async def _serve(host: str, port: int, replies: list["ScriptedReply"], scripts: "AgentScripts", itl: float) -> None:
    from gateway.upstream.simulated import serve_simulator

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with serve_simulator(host=host, port=port, itl=itl, script=replies, agents=scripts) as served:
        click.echo(f"Simulated inference server on {served.url} (models: {served.url}/v1/models)")
        await stop.wait()
