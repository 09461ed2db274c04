"""What the result of a tool becomes: text for the model, and members of the `mcp_call` item."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gateway.protocol import codec
from gateway.protocol.hosted import HostedResult
from gateway.tools.mcp.exchange import hide

_ERROR_TYPE = "mcp_tool_execution_error"
_NOTHING = "The tool returned nothing."
_FAILED = "The tool failed and did not say why."


def read_result(result: Mapping[str, Any], secrets: Sequence[str] = ()) -> HostedResult:
    """Return a result as the model and the client are told it.

    Texts are joined by line breaks. Of what models cannot read here, pictures and sound, only kind and size are told.
    Structured content stands in where there is no content else.

    Args:
        result: of `tools/call`, unchecked.
        secrets: what its texts must not repeat.
    """
    content = result.get("content")
    texts = list(_read_content(content)) if isinstance(content, list) else []
    structured = result.get("structuredContent")
    if not texts and structured is not None:
        texts = [codec.encode(structured).decode()]
    size = len(codec.encode(result))
    if result.get("isError") is True:
        told = hide("\n".join(texts), secrets) or _FAILED
        error = {"type": _ERROR_TYPE, "content": [{"type": "text", "text": told}]}
        fields: dict[str, Any] = {"status": "failed", "output": None, "error": error}
        return HostedResult(output=told, size=size, fields=fields, failed=True)
    told = hide("\n".join(texts), secrets) or _NOTHING
    return HostedResult(output=told, size=size, fields={"status": "completed", "output": told, "error": None})


def _read_content(content: list[Any]) -> Iterator[str]:
    for block in content:
        if not isinstance(block, dict):
            continue
        match block.get("type"):
            case "text":
                yield str(block.get("text", ""))
            case "image" | "audio" as kind:
                yield _describe(kind, block.get("mimeType"), block.get("data"))
            case "resource":
                resource = block.get("resource")
                yield _read_resource(resource if isinstance(resource, dict) else {})
            case "resource_link":
                named = block.get("title") or block.get("name") or "resource"
                yield f"[{named}: {block.get('uri')}]"


def _read_resource(resource: Mapping[str, Any]) -> str:
    text = resource.get("text")
    if isinstance(text, str):
        return f"{resource.get('uri')}:\n{text}"
    return _describe(f"resource {resource.get('uri')}", resource.get("mimeType"), resource.get("blob"))


def _describe(what: str, mime_type: Any, data: Any) -> str:
    """Return what is told in the place of data in base 64."""
    size = len(data) * 3 // 4 - data[-2:].count("=") if isinstance(data, str) else 0
    return f"[{what}, {mime_type or 'of unknown type'}, {size} bytes, not shown]"
