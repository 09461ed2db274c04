"""Opens sessions; with it the SDK is loaded, so it is imported when the first one is needed."""

from gateway.config.schema import McpConfig
from gateway.tools.mcp.http import connect_http
from gateway.tools.mcp.session import Session
from gateway.tools.mcp.stdio import connect_stdio
from gateway.tools.mcp.targets import Program, Target


def build_session(target: Target, config: McpConfig) -> Session:
    """Return a session that is still to be started."""
    if isinstance(target, Program):
        return Session(lambda ended: connect_stdio(target, config.max_message_bytes, ended))
    return Session(lambda _: connect_http(target, config))
