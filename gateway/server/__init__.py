"""The process: its sockets, its signals and its end.

uvicorn serves; this room binds the sockets beforehand, owns the signals and drains before it lets uvicorn stop.
"""

from gateway.server.draining import GatewayServer
from gateway.server.exits import EXIT_DONE, EXIT_FAILED
from gateway.server.listeners import Listeners, bind_listeners
from gateway.server.parent import supervise
from gateway.server.process import serve

__all__ = ["EXIT_DONE", "EXIT_FAILED", "GatewayServer", "Listeners", "bind_listeners", "serve", "supervise"]
