"""What a search provider needs to be asked."""

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from gateway.config.addresses import is_confidential, is_loopback
from gateway.config.certificates import CertificateFileError, trust_file
from gateway.config.findings import KeyPath
from gateway.config.schema.web_search import WebSearchConfig
from gateway.config.units import KIB, format_size

_PROVIDER, _URL, _KEY, _CA = (("web_search", name) for name in ("provider", "url", "api_key", "ca_file"))
_PRIVATE: KeyPath = ("web_search", "allow_private_addresses")
_OUTPUT: KeyPath = ("web_search", "max_output_bytes")
_LEAST_OUTPUT: Final = 4 * KIB
_WITH_KEY: Final = ("brave", "tavily")


def review_web_search(config: WebSearchConfig) -> Iterator[tuple[str, *tuple[KeyPath, ...]]]:
    """Yield what forbids a configuration of web search: what is wrong and how to mend it, then the keys involved."""
    if config.provider == "off":
        return
    if config.provider in _WITH_KEY and config.api_key is None:
        yield f"{config.provider} needs a key; set web_search.api_key_file", _PROVIDER, _KEY
    if config.provider == "searxng" and config.url is None:
        yield "searxng has no address of its own; set web_search.url to that of your instance", _PROVIDER, _URL
    if config.api_key is not None and not config.api_key.reveal().isascii():
        yield "holds a character that no header can carry; keys are ASCII", _KEY
    if config.max_output_bytes < _LEAST_OUTPUT:
        yield f"has no room for one result; set at least {format_size(_LEAST_OUTPUT)}", _OUTPUT
    if config.url is not None:
        if is_loopback(urlsplit(config.url).hostname or "") and not config.allow_private_addresses:
            yield "is on this machine; set web_search.allow_private_addresses = true", _URL, _PRIVATE
        if config.api_key is not None and not is_confidential(config.url):
            yield "is not https: whoever is on the way could read api_key", _URL, _KEY
    if config.ca_file is not None:
        try:
            trust_file(config.ca_file)
        except CertificateFileError as error:
            yield str(error), _CA
