"""The two shells of the API."""

from collections.abc import Iterable
from typing import Any, ClassVar

from gateway.protocol import events
from gateway.protocol.client_tool import ClientTool, Json, as_text, pick, read_arguments, without_nulls
from gateway.protocol.events import Event


class ShellTool(ClientTool):
    """`shell` in an environment of the client's."""

    call, output = "shell_call", "shell_call_output"
    blank: ClassVar[Json] = {"action": {"commands": [], "timeout_ms": None, "max_output_length": None}}
    description = "Runs shell commands and returns what each wrote and how it ended."
    parameters: ClassVar[Json] = {
        "type": "object",
        "properties": {
            "commands": {
                "type": "array",
                "items": {"type": "string"},
                "description": "Command lines for the shell, in order.",
            },
            "timeout_ms": {"type": "integer", "description": "Longest time the commands may take, in milliseconds."},
            "max_output_length": {"type": "integer", "description": "Most characters of output to return."},
        },
        "required": ["commands"],
    }

    def is_clients(self, tool: Json) -> bool:
        """A container is a server's."""
        environment = tool.get("environment")
        return environment is None or (isinstance(environment, dict) and environment.get("type") == "local")

    def describe(self, tool: Json) -> tuple[str, Any]:
        """Return the function, with the skills that the environment has."""
        skills = (tool.get("environment") or {}).get("skills")
        lines = [
            f"- {skill.get('name')} ({skill.get('path')}): {skill.get('description')}"
            for skill in (skills if isinstance(skills, list) else [])
            if isinstance(skill, dict)
        ]
        told = "\n".join(["\n\nSkills, each described by the file SKILL.md in its folder:", *lines]) if lines else ""
        return self.description + told, self.parameters

    def restore(self, arguments: str) -> Json:
        """Return the action; arguments without commands are the command."""
        given = read_arguments(arguments)
        found = given if isinstance(given, dict) else {"commands": given}
        commands = _read_texts(found.get("commands", found.get("command")))
        return {
            "action": {
                "commands": [arguments] if commands is None else commands,
                "timeout_ms": _read_count(found.get("timeout_ms")),
                "max_output_length": _read_count(found.get("max_output_length")),
            }
        }

    def tell(self, members: Json, output_index: int) -> Iterable[Event]:
        """Yield each command as it would be if it had been written now."""
        for number, command in enumerate(members["action"]["commands"]):
            yield events.ShellCommandAdded(output_index=output_index, command_index=number, command="")
            if command:
                yield events.ShellCommandDelta(output_index=output_index, command_index=number, delta=command)
            yield events.ShellCommandDone(output_index=output_index, command_index=number, command=command)

    def write_arguments(self, item: Json) -> Any:
        """Return the action."""
        return without_nulls(item.get("action"))

    def write_output(self, item: Json) -> Any:
        """Return the results as JSON, so that no output can pass for an exit code."""
        results = item.get("output")
        if isinstance(results, list):
            results = [pick(result, ("stdout", "stderr", "outcome")) for result in results]
        return as_text(results)


class LocalShellTool(ClientTool):
    """`local_shell`: one command, as a list of arguments."""

    call, output = "local_shell_call", "local_shell_call_output"
    blank: ClassVar[Json] = {"action": {"type": "exec", "command": [], "env": {}}}
    description = "Runs one command on the user's machine and returns what it wrote."
    parameters: ClassVar[Json] = {
        "type": "object",
        "properties": {
            "command": {
                "type": "array",
                "items": {"type": "string"},
                "description": 'The program and its arguments, for example ["ls", "-l"].',
            },
            "working_directory": {"type": "string", "description": "Where to run it."},
            "timeout_ms": {"type": "integer", "description": "Longest time it may take, in milliseconds."},
            "env": {
                "type": "object",
                "additionalProperties": {"type": "string"},
                "description": "Further environment variables.",
            },
            "user": {"type": "string", "description": "Whom to run it as."},
        },
        "required": ["command"],
    }

    def restore(self, arguments: str) -> Json:
        """Return the action; a command that is one text is the shell's to read."""
        given = read_arguments(arguments)
        found = given if isinstance(given, dict) else {"command": given}
        command, env = found.get("command"), found.get("env")
        if not isinstance(command, list) or _read_texts(command) is None:
            command = ["sh", "-c", command if isinstance(command, str) else arguments]
        action: Json = {
            "type": "exec",
            "command": command,
            "env": {name: str(value) for name, value in env.items()} if isinstance(env, dict) else {},
        }
        timeout = _read_count(found.get("timeout_ms"))
        texts = {name: found[name] for name in ("working_directory", "user") if isinstance(found.get(name), str)}
        return {"action": action | ({} if timeout is None else {"timeout_ms": timeout}) | texts}

    def write_arguments(self, item: Json) -> Any:
        """Return the action."""
        action = without_nulls(item.get("action"))
        return {name: value for name, value in action.items() if name != "type" and value != {}}

    def write_output(self, item: Json) -> Any:
        """Return the output, which is a text already."""
        return as_text(item.get("output"))


def _read_texts(value: Any) -> list[str] | None:
    """Return a list of texts, of which a single one may stand alone; None for anything else."""
    if isinstance(value, str):
        return [value]
    return value if isinstance(value, list) and all(isinstance(text, str) for text in value) else None


def _read_count(value: Any) -> int | None:
    """Return a whole number that is not negative, however it is written; None for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
