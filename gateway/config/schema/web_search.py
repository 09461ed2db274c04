"""The keys of web search."""

from typing import Annotated, Literal

from gateway.config.kinds import ApiKey, Count, Duration, FilePath, HttpUrl, Size, doc
from gateway.config.schema.section import Section
from gateway.config.units import KIB, MIB


class WebSearchConfig(Section, frozen=True, kw_only=True):
    """The web_search tool, which the gateway runs for models by asking a search provider."""

    provider: Annotated[
        Literal["off", "searxng", "brave", "tavily"],
        doc("Who is asked. With off, requests that declare the tool are answered without it."),
    ] = "off"
    url: Annotated[
        HttpUrl | None,
        doc(
            "Base URL of the provider, needed for searxng; none takes the provider's own. A trailing slash is dropped."
        ),
    ] = None
    api_key: Annotated[ApiKey, doc("Key of the provider, needed for brave and tavily; searxng gets none.")] = None
    api_key_file: Annotated[
        FilePath | None, doc("File that holds api_key, in the place of it; one trailing line break is dropped.")
    ] = None
    allow_private_addresses: Annotated[
        bool,
        doc(
            "Whether url may lead to loopback, private and link-local addresses, as that of a searxng of your own does."
        ),
    ] = False
    ca_file: Annotated[
        FilePath | None,
        doc("PEM file of the certificate authorities trusted for an https url, in the place of the system's."),
    ] = None
    max_queries: Annotated[Count, doc("Most queries of one search; further ones are not asked.", le=20)] = 5
    max_results: Annotated[
        Count, doc("Most results of one query; search_context_size of a request may ask for fewer.", le=20)
    ] = 10
    max_connections: Annotated[
        Count, doc("Connections to the provider open at once; further queries wait.", per_process=True)
    ] = 16
    timeout_seconds: Annotated[
        Duration, doc("Limit for one query, from waiting for a connection to the last byte of the answer.")
    ] = 10.0
    max_response_bytes: Annotated[
        Size, doc("Largest answer of the provider to one query; it is counted as it arrives, and not read beyond.")
    ] = MIB
    max_output_bytes: Annotated[
        Size, doc("Most bytes of results that one search, with all its queries, tells the model.")
    ] = 32 * KIB
