"""Litestar, as both listeners use it."""

from litestar import Litestar
from litestar.plugins import PluginProtocol
from litestar.plugins.core import MsgspecDIPlugin


class LeanLitestar(Litestar):
    """Litestar without its plugins for model libraries, which take 10 MB wherever these happen to be installed."""

    @staticmethod
    def _get_default_plugins(plugins: list[PluginProtocol]) -> list[PluginProtocol]:
        return [*plugins, MsgspecDIPlugin()]
