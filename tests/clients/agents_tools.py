"""The OpenAI Agents SDK with every tool that its users run themselves, against a gateway with the simulator behind it.

Usage: `agents_tools.py URL`, the gateway's base URL with `/v1`. Prints a line for each check and exits 1 if one failed.
"""

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from agents import (
    Agent,
    ApplyPatchTool,
    ComputerTool,
    CustomTool,
    LocalShellTool,
    OpenAIConversationsSession,
    RunConfig,
    Runner,
    ShellTool,
    ToolSearchTool,
    apply_diff,
    function_tool,
    responses_websocket_session,
    set_tracing_disabled,
)
from agents.computer import Computer
from agents.models.openai_provider import OpenAIProvider
from agents.tool import tool_namespace
from openai import AsyncOpenAI

MARKER = "marker-42"
FOLDER = Path(tempfile.mkdtemp())


def run_commands(commands: list[str]) -> str:
    return "".join(
        subprocess.run(line, shell=True, capture_output=True, text=True, check=True).stdout for line in commands
    )


class Editor:
    """Works on the files of one folder."""

    def create_file(self, operation: Any) -> str:
        (FOLDER / operation.path).write_text(apply_diff("", operation.diff, mode="create"))
        return f"created {operation.path}"

    def update_file(self, operation: Any) -> str:
        path = FOLDER / operation.path
        path.write_text(apply_diff(path.read_text(), operation.diff))
        return f"updated {operation.path}: {path.read_text()}"

    def delete_file(self, operation: Any) -> str:
        (FOLDER / operation.path).unlink()
        return f"deleted {operation.path}"


class Screen(Computer):
    """A computer that notes what is done with it."""

    def __init__(self) -> None:
        self.done: list[Any] = []

    environment = "linux"
    dimensions = (800, 600)

    def screenshot(self) -> str:
        return "iVBORw0KGgo="

    def click(self, x: int, y: int, button: str) -> None:
        self.done.append(("click", x, y, button))

    def type(self, text: str) -> None:
        self.done.append(("type", text))

    def double_click(self, x: int, y: int) -> None: ...
    def scroll(self, x: int, y: int, scroll_x: int, scroll_y: int) -> None: ...
    def wait(self) -> None: ...
    def move(self, x: int, y: int) -> None: ...
    def keypress(self, keys: list[str]) -> None: ...
    def drag(self, path: list[tuple[int, int]]) -> None: ...


@function_tool
def look_up(city: str) -> str:
    """Weather of a city."""
    return f"12C in {city}"


@function_tool(defer_loading=True)
def send(text: str) -> str:
    """Send a mail."""
    return f"sent {text}"


async def repeat(context: Any, text: str) -> str:
    return text.upper()


SCREEN = Screen()
GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /.+/"}
TOOLS = [
    look_up,
    ShellTool(executor=lambda request: run_commands(request.data.action.commands)),
    ApplyPatchTool(editor=Editor()),
    CustomTool(name="repeat", description="Repeats.", format=GRAMMAR, on_invoke_tool=repeat),
    *tool_namespace(name="mail", description="Mail.", tools=[send]),
    ToolSearchTool(),
]
PATCHES = """\
@tool apply_patch {"type": "create_file", "path": "a.txt", "diff": "+one\\n+two"}
@then
@tool apply_patch {"type": "update_file", "path": "a.txt", "diff": "@@\\n one\\n-two\\n+three"}
@then
@tool apply_patch {"type": "delete_file", "path": "a.txt"}"""
CLICK = '@tool computer {"actions": [{"type": "click", "x": 3, "y": 4}, {"type": "type", "text": "hi"}]}\n@say Clicked.'
PROMPTS = {
    "shell": (TOOLS, '@tool shell {"commands": ["echo marker-42"], "timeout_ms": 5000}', MARKER),
    "apply_patch": (TOOLS, PATCHES, "three"),
    "custom": (TOOLS, '@tool repeat {"input": "say it"}', "SAY IT"),
    "function and namespace": (TOOLS, '@tool look_up {"city": "Oslo"}\n@tool mail__send {"text": "hi"}', "sent hi"),
    "local_shell": (
        [LocalShellTool(executor=lambda request: run_commands([" ".join(request.data.action.command)]))],
        '@tool local_shell {"command": ["echo", "marker-42"]}',
        MARKER,
    ),
    "computer": ([ComputerTool(computer=SCREEN)], CLICK, "Clicked."),
}


async def main(url: str) -> int:
    set_tracing_disabled(True)
    failed = 0
    over_http = RunConfig(model_provider=OpenAIProvider(base_url=url, api_key="unused", use_responses=True))

    async def answer(agent: Agent, prompt: str) -> str:
        return str((await Runner.run(agent, prompt, run_config=over_http)).final_output)

    async def stream(agent: Agent, prompt: str) -> str:
        running = Runner.run_streamed(agent, prompt, run_config=over_http)
        async for _ in running.stream_events():
            pass
        return str(running.final_output)

    async def go_on(agent: Agent, prompt: str) -> str:
        first = await Runner.run(agent, prompt, run_config=over_http, auto_previous_response_id=True)
        again = await Runner.run(agent, prompt, run_config=over_http, previous_response_id=first.last_response_id)
        return str(again.final_output)

    async def in_conversation(agent: Agent, prompt: str) -> str:
        async with AsyncOpenAI(base_url=url, api_key="unused") as library:
            session = OpenAIConversationsSession(openai_client=library)
            for _ in range(2):
                said = await Runner.run(agent, prompt, run_config=over_http, session=session)
            return str(said.final_output)

    async def on_socket(agent: Agent, prompt: str) -> str:
        async with responses_websocket_session(base_url=url, api_key="unused") as session:
            running = session.run_streamed(agent, prompt)
            async for _ in running.stream_events():
                pass
            return str(running.final_output)

    ways: list[Callable[[Agent, str], Awaitable[str]]] = [answer, stream, go_on, in_conversation, on_socket]
    for way in ways:
        for name, (tools, prompt, expected) in PROMPTS.items():
            agent = Agent(name="tester", model="sim", tools=tools)
            try:
                said = await asyncio.wait_for(way(agent, prompt), 20)
                fault = "" if expected in said else f"{expected!r} is not in {said!r}"
            except Exception as error:
                fault = f"{type(error).__name__}: {error}"
            print(f"{way.__name__} {name}: {fault or 'ok'}")
            failed += bool(fault)
    if SCREEN.done != [("click", 3, 4, "left"), ("type", "hi")] * 7:
        print(f"the computer was used otherwise: {SCREEN.done}")
        failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
