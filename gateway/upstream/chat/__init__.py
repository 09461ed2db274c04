"""Servers that speak Chat Completions alone: requests are put into that form, answers back into that of Responses."""

from gateway.upstream.chat.dialect import ChatDialect
from gateway.upstream.chat.exchange import ChatExchange

__all__ = ["ChatDialect", "ChatExchange"]
