"""All tools of the API that clients run, by the type that a request declares."""

from typing import Any, ClassVar

from gateway.protocol.client_tool import ClientTool, Json, as_text, pick, read_arguments, without_nulls
from gateway.protocol.computer_tools import ComputerPreviewTool, ComputerTool
from gateway.protocol.shell_tools import LocalShellTool, ShellTool

# Where a patch goes whose arguments name no file: an editor finds none and says so.
NO_PATH = "(no path given)"
_OPERATIONS = ("create_file", "update_file", "delete_file")
# The beginnings of types that are always a server's.
_SERVERS = (
    "code_interpreter", "computer", "file_search", "image_generation", "mcp", "namespace", "programmatic_tool_calling",
    "web_search",
)  # fmt: skip
_QUERY: Json = {
    "type": "object",
    "properties": {"query": {"type": "string", "description": "What the tools are needed for."}},
    "required": ["query"],
}


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
        return without_nulls(item.get("operation"))

    def write_output(self, item: Json) -> Any:
        """Return how it went, as JSON."""
        return as_text(pick(item, ("status", "output")))


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
        return as_text({"tools": item.get("tools")})


CLIENT_TOOLS: dict[str, ClientTool] = {
    "shell": ShellTool(),
    "local_shell": LocalShellTool(),
    "apply_patch": PatchTool(),
    "tool_search": SearchTool(),
    "computer": ComputerTool(),
    "computer_use_preview": ComputerPreviewTool(),
}


def find_client_tool(tool: Json) -> ClientTool | None:
    """Return how a declared tool is carried, None if it is none of these or a server's to run."""
    found = CLIENT_TOOLS.get(tool["type"])
    return found if found is not None and found.is_clients(tool) else None


def read_foreign_tool(tool: Json) -> Json | None:
    """Return the function that stands for a tool of a type the API does not have, None if it is a server's to run.

    A client runs what it says it runs, and what it tells the arguments of; a call comes back as that of a function.
    """
    kind = tool["type"]
    if kind in CLIENT_TOOLS or kind.startswith(_SERVERS):
        return None
    parameters = tool.get("parameters") or tool.get("input_schema")
    if not isinstance(parameters, dict) and tool.get("execution") != "client":
        return None
    function = {"type": "function", "name": tool.get("name", kind), **pick(tool, ("description", "strict"))}
    return {**function, "parameters": parameters if isinstance(parameters, dict) else {"type": "object"}}


def _read_operation(arguments: str) -> Json:
    given = read_arguments(arguments)
    if isinstance(given, dict) and isinstance(given.get("operation"), dict):
        given = given["operation"]
    return given if isinstance(given, dict) else {}
