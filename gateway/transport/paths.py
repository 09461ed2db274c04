"""Paths, and which of them answer whoever asks."""

from typing import Final

RESPONSES_PATH: Final = "/v1/responses"
COMPACT_PATH: Final = RESPONSES_PATH + "/compact"
INPUT_TOKENS_PATH: Final = RESPONSES_PATH + "/input_tokens"
RESPONSE_PATH: Final = RESPONSES_PATH + "/{response_id:str}"
LIVEZ_PATH: Final = "/livez"
READYZ_PATH: Final = "/readyz"
HEALTH_PATH: Final = "/health"
VERSION_PATH: Final = "/version"
DOCUMENT_PATH: Final = "/openapi.json"
PAGE_PATH: Final = "/docs"

OPEN_PATHS: Final = frozenset({LIVEZ_PATH, READYZ_PATH, HEALTH_PATH, VERSION_PATH, DOCUMENT_PATH, PAGE_PATH})
"""Probes have no key, and the description of the API holds nothing of anybody's."""
