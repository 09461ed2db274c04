"""Tools of the API that the client runs itself: what the model is offered, and what its calls become.

Models know functions only. Each class here words one tool as a function, turns the arguments that a model writes for
it into the item the API has, and turns items of history back. Whatever a model writes becomes a valid item: what
cannot be read as agreed is handed on as text, so that the tool itself tells the model what is wrong with it.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

from gateway.protocol import codec, computer_actions, events
from gateway.protocol.events import Event

Json = dict[str, Any]

# Where a patch goes whose arguments name no file: an editor finds none and says so.
NO_PATH = "(no path given)"
_OPERATIONS = ("create_file", "update_file", "delete_file")
_QUERY: Json = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What the tools are needed for."}},
    "required": ["query"],
}


class ClientTool:
    """One type of tool.

    Attributes:
        call: type of the item a call becomes.
        output: type of the item that answers it.
        can_be_cut: whether the item has a form for a call that was cut off.
        blank: the members of the call's item while nothing is known of it.
        description: what the model is told of the tool.
        parameters: what it is to write, as a JSON schema.
    """

    call: ClassVar[str]
    output: ClassVar[str]
    can_be_cut: ClassVar[bool] = True
    blank: ClassVar[Json]
    description: ClassVar[str]
    parameters: ClassVar[Json]

    def is_clients(self, tool: Json) -> bool:  # noqa: ARG002
        """Tell whether a declaration means that the client runs the tool."""
        return True

    def describe(self, tool: Json) -> tuple[str, Any]:  # noqa: ARG002
        """Return the description and the parameters of the function that carries a declared tool."""
        return self.description, self.parameters

    def restore(self, arguments: str) -> Json:
        """Return the members of the call's item that the arguments tell, for any arguments."""
        raise NotImplementedError

    def is_whole(self, arguments: str) -> bool:
        """Tell whether the arguments are such as were agreed; asked where the item has no form for less."""
        raise NotImplementedError

    def begin(self, members: Json) -> Json:  # noqa: ARG002
        """Return the members as they are shown when the item is announced: empty."""
        return self.blank

    def tell(self, members: Json, output_index: int) -> Iterable[Event]:  # noqa: ARG002
        """Return the events between `output_item.added` and `done`."""
        return ()

    def write_arguments(self, item: Json) -> Any:
        """Return the arguments that a call's item of history stands for."""
        raise NotImplementedError

    def write_output(self, item: Json) -> Any:
        """Return an output's item of history as the output of a function: a text, or parts."""
        raise NotImplementedError


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
        return _without_nulls(item.get("action"))

    def write_output(self, item: Json) -> Any:
        """Return the results as JSON, so that no output can pass for an exit code."""
        results = item.get("output")
        if isinstance(results, list):
            results = [_pick(result, ("stdout", "stderr", "outcome")) for result in results]
        return _as_text(results)


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
        action = _without_nulls(item.get("action"))
        return {name: value for name, value in action.items() if name != "type" and value != {}}

    def write_output(self, item: Json) -> Any:
        """Return the output, which is a text already."""
        return _as_text(item.get("output"))


class PatchTool(ClientTool):
    """`apply_patch`: one change of one file."""

    call, output = "apply_patch_call", "apply_patch_call_output"
    blank: ClassVar[Json] = {"operation": {"type": "update_file", "path": NO_PATH, "diff": ""}}
    can_be_cut = False
    description = "Creates, changes or deletes one file. Call it once for each file."
    parameters: ClassVar[Json] = {
        "type": "object",
        "properties": {
            "type": {"type": "string", "enum": list(_OPERATIONS), "description": "What to do."},
            "path": {"type": "string", "description": "The file."},
            "diff": {
                "type": "string",
                "description": (
                    "For create_file the lines of the file, each after a '+'. For update_file its changes as hunks: a "
                    "line '@@', or '@@ ' and a line that comes before, such as the head of a function; then lines that "
                    "stay after a ' ', lines that go after a '-', and lines that come after a '+'."
                ),
            },
        },
        "required": ["type", "path"],
    }

    def restore(self, arguments: str) -> Json:
        """Return the operation; arguments that name no file are a patch of a file that does not exist."""
        found = _read_operation(arguments)
        kind, path, diff = found.get("type"), found.get("path"), found.get("diff")
        if not isinstance(path, str) or not path:
            return {"operation": {"type": "update_file", "path": NO_PATH, "diff": arguments}}
        operation: Json = {"type": kind if kind in _OPERATIONS else "update_file", "path": path}
        if kind != "delete_file":
            operation["diff"] = diff if isinstance(diff, str) else ""
        return {"operation": operation}

    def is_whole(self, arguments: str) -> bool:
        """Whether they name what to do and the file."""
        found = _read_operation(arguments)
        return found.get("type") in _OPERATIONS and isinstance(found.get("path"), str) and bool(found["path"])

    def begin(self, members: Json) -> Json:
        """Return the operation without its diff."""
        operation = members["operation"]
        return {"operation": {**operation, "diff": ""} if "diff" in operation else operation}

    def write_arguments(self, item: Json) -> Any:
        """Return the operation."""
        return _without_nulls(item.get("operation"))

    def write_output(self, item: Json) -> Any:
        """Return how it went, as JSON."""
        return _as_text(_pick(item, ("status", "output")))


class SearchTool(ClientTool):
    """`tool_search` of a client that finds tools itself."""

    call, output = "tool_search_call", "tool_search_output"
    blank: ClassVar[Json] = {"execution": "client", "arguments": {}}
    description = "Finds further tools. What is found can be called from then on."
    parameters = _QUERY

    def is_clients(self, tool: Json) -> bool:
        """Without a word the search is the server's."""
        return tool.get("execution") == "client"

    def describe(self, tool: Json) -> tuple[str, Any]:
        """Return the function as the client words it."""
        description, parameters = tool.get("description"), tool.get("parameters")
        return (
            description if isinstance(description, str) and description else self.description,
            parameters if isinstance(parameters, dict) and parameters else self.parameters,
        )

    def restore(self, arguments: str) -> Json:
        """Return the arguments as a value; what is no JSON stays a text."""
        return {"execution": "client", "arguments": read_arguments(arguments)}

    def write_arguments(self, item: Json) -> Any:
        """Return the arguments."""
        return item.get("arguments")

    def write_output(self, item: Json) -> Any:
        """Return the names of what was found; the tools themselves are offered beside."""
        return _as_text({"tools": item.get("tools")})


class ComputerTool(ClientTool):
    """`computer`: what to do with mouse and keyboard, answered by a picture of the screen."""

    call, output = "computer_call", "computer_call_output"
    blank: ClassVar[Json] = {"pending_safety_checks": [], "actions": []}
    description = "Uses the mouse and keyboard of a computer and returns a picture of its screen."
    parameters: ClassVar[Json] = {
        "type": "object",
        "properties": {
            "actions": {"type": "array", "items": computer_actions.SCHEMA, "description": "What to do, in order."}
        },
        "required": ["actions"],
    }

    def restore(self, arguments: str) -> Json:
        """Return the actions; where one cannot be read, a look at the screen takes the place of all."""
        return {"pending_safety_checks": [], "actions": computer_actions.read_actions(read_arguments(arguments))}

    def write_arguments(self, item: Json) -> Any:
        """Return the actions, one of the older form included."""
        actions = item.get("actions") or [item.get("action")]
        return {"actions": [_without_nulls(action) for action in actions if isinstance(action, dict)]}

    def write_output(self, item: Json) -> Any:
        """Return the picture."""
        screenshot = item.get("output")
        url = screenshot.get("image_url") if isinstance(screenshot, dict) else None
        return [{"type": "input_image", "image_url": url}] if isinstance(url, str) else _as_text(screenshot)


class ComputerPreviewTool(ComputerTool):
    """`computer_use_preview`: one action a call."""

    blank: ClassVar[Json] = {"pending_safety_checks": []}
    parameters: ClassVar[Json] = computer_actions.SCHEMA

    def describe(self, tool: Json) -> tuple[str, Any]:
        """Return the function, with the size of the screen."""
        size = "x".join(str(tool.get(name)) for name in ("display_width", "display_height"))
        return f"{self.description} The screen has {size} pixels.", self.parameters

    def restore(self, arguments: str) -> Json:
        """Return the action."""
        action, *_ = computer_actions.read_actions(read_arguments(arguments))
        return {"pending_safety_checks": [], "action": action}

    def write_arguments(self, item: Json) -> Any:
        """Return the action."""
        return super().write_arguments(item)["actions"][0] if item.get("action") else {}


CLIENT_TOOLS: dict[str, ClientTool] = {
    "shell": ShellTool(),
    "local_shell": LocalShellTool(),
    "apply_patch": PatchTool(),
    "tool_search": SearchTool(),
    "computer": ComputerTool(),
    "computer_use_preview": ComputerPreviewTool(),
}
"""By the type that a request declares."""


def find_client_tool(tool: Json) -> ClientTool | None:
    """Return how a declared tool is carried, None if it is none of these or a server's to run."""
    found = CLIENT_TOOLS.get(tool["type"])
    return found if found is not None and found.is_clients(tool) else None


def read_arguments(arguments: str) -> Any:
    """Return the value of a model's arguments; what is no JSON is a text."""
    try:
        return codec.decode(arguments.encode("utf-8", "surrogatepass"))
    except ValueError:
        return arguments


def _read_operation(arguments: str) -> Json:
    given = read_arguments(arguments)
    if isinstance(given, dict) and isinstance(given.get("operation"), dict):
        given = given["operation"]
    return given if isinstance(given, dict) else {}


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


def _without_nulls(value: Any) -> Json:
    return {name: member for name, member in value.items() if member is not None} if isinstance(value, dict) else {}


def _pick(value: Any, names: tuple[str, ...]) -> Json:
    return {name: value[name] for name in names if value.get(name) is not None} if isinstance(value, dict) else {}


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else codec.encode(value).decode()
