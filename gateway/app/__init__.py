"""The composition root: the only place where the parts meet."""

from gateway.app.errors import StartError
from gateway.app.gateway import Gateway, build_app
from gateway.app.parts import Parts, SystemClock, build_parts

__all__ = ["Gateway", "Parts", "StartError", "SystemClock", "build_app", "build_parts"]
