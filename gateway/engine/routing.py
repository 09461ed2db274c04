"""Which inference server serves which model, and under what name."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gateway.config.schema import ResponsesConfig, UpstreamConfig
from gateway.engine.admission import Seats
from gateway.ports import Upstream
from gateway.protocol.agents.asked import AgentsPolicy
from gateway.protocol.errors import GatewayError, NotFound
from gateway.protocol.requests import RequestPolicy

RawHeaders = Iterable[tuple[bytes, bytes]]

_MODEL_NOT_FOUND = "model_not_found"
# Routes of models that callers alone have named: as many are kept as a server may serve, and no more.
_MAX_KEPT = 256


class Route(NamedTuple):
    """Where one model goes.

    Attributes:
        upstream: the server.
        seats: its concurrent calls.
        policy: what a request to it may hold.
        salted: every caller gets a prefix cache of its own there.
        headers: names of the caller's headers that are passed on to it, in lower case.
        model: the model's name there.
        passthrough: further paths of it that callers may use.
        configured: whether the model is named in the configuration, rather than by a caller alone.
    """

    upstream: Upstream
    seats: Seats
    policy: RequestPolicy
    salted: bool
    headers: frozenset[bytes]
    model: str
    passthrough: frozenset[str] = frozenset()
    configured: bool = False

    @property
    def known_model(self) -> str:
        """The model as metrics have it: `other`, unless the configuration or the server's own list has its name."""
        return self.model if self.configured or self.upstream.serves(self.model) else "other"

    def pick_headers(self, sent: RawHeaders) -> dict[str, str]:
        """Return those of a caller's headers that are passed on."""
        if not self.headers:
            return {}
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in sent if name in self.headers}


class Routing:
    """Chooses by `aliases`, then by `models`; an upstream that lists no models takes all others.

    Args:
        upstreams: the servers by name.
        seats: their concurrent calls under the same names.
        configs: their configurations under the same names.
        responses: how requests are read, whatever the server.
        compact_threshold: as in `RequestPolicy`.
        agents: likewise.
    """

    def __init__(
        self,
        upstreams: Mapping[str, Upstream],
        seats: Mapping[str, Seats],
        configs: Mapping[str, UpstreamConfig],
        responses: ResponsesConfig,
        compact_threshold: int | None = None,
        agents: AgentsPolicy | None = None,
    ) -> None:
        self._named: dict[str, Route] = {}
        self._open: Route | None = None
        self._opened: dict[str, Route] = {}
        self._all = [upstreams[name] for name in configs]
        self._first_for: dict[str, Route] = {}
        for name, config in configs.items():
            route = Route(
                upstream=upstreams[name],
                seats=seats[name],
                policy=_policy(config, responses, compact_threshold, agents),
                salted=config.cache_salt_per_principal,
                headers=frozenset(header.lower().encode() for header in config.forward_headers),
                model="",
                passthrough=frozenset(config.passthrough),
            )
            for path in config.passthrough:
                self._first_for.setdefault(path, route)
            for model in config.models:
                self._named.setdefault(model, route._replace(model=model, configured=True))
            for alias, model in config.aliases.items():
                self._named[alias] = route._replace(model=model, configured=True)
            if not config.models and self._open is None:
                self._open = route

    @property
    def default(self) -> Route:
        """Where a request without a model would go."""
        return self._open or next(iter(self._named.values()))

    @property
    def by_model(self) -> bool:
        """Whether it depends on the model where a request goes, or what the model is called there."""
        return bool(self._named)

    def choose_for(self, path: str, model: str | None) -> Route:
        """Return where a request to a further path goes, with an empty model if it has none.

        Args:
            path: listed by at least one upstream.
            model: the model asked for, or None where nobody has looked or there is none.

        Raises:
            NotFound: no upstream takes the model, or not at this path.
        """
        if model is None:
            return self._first_for[path]
        route = self.choose(model)
        if path not in route.passthrough:
            raise NotFound(f"The model '{model[:128]}' is not served at {path}.", code=_MODEL_NOT_FOUND, param="model")
        return route

    def choose(self, model: str) -> Route:
        """Return where a model goes.

        Raises:
            NotFound: no upstream takes it.
        """
        route = self._named.get(model) or self._opened.get(model)
        if route is None:
            if self._open is None:
                raise model_not_found(model)
            route = self._open._replace(model=model)
            if len(self._opened) < _MAX_KEPT:
                self._opened[model] = route
        return route

    async def models(self) -> list[dict[str, Any]]:
        """Return every model callers can name: those the upstreams report and the aliases.

        Raises:
            GatewayError: no upstream could be asked.
        """
        found: dict[str, dict[str, Any]] = {}
        failure: GatewayError | None = None
        answered = False
        for upstream in self._all:
            try:
                listed = (await upstream.models()).get("data")
            except GatewayError as error:
                failure = error
                continue
            answered = True
            for entry in listed if isinstance(listed, list) else []:
                if isinstance(entry, dict) and isinstance(entry.get("id"), str) and self._serves(entry["id"], upstream):
                    found.setdefault(entry["id"], {"object": "model", "created": 0, "owned_by": "upstream", **entry})
        if failure is not None and not answered:
            raise failure
        for name, route in self._named.items():
            if name not in found and name != route.model:
                found[name] = {
                    **found.get(route.model, {"created": 0, "owned_by": "upstream"}),
                    "id": name,
                    "object": "model",
                }
        return list(found.values())

    def _serves(self, model: str, upstream: Upstream) -> bool:
        route = self._named.get(model) or self._open
        return route is not None and route.upstream is upstream


def model_not_found(model: str) -> NotFound:
    """Return the error for a model nobody serves."""
    return NotFound(f"The model '{model[:128]}' does not exist.", code=_MODEL_NOT_FOUND, param="model")


def _policy(
    upstream: UpstreamConfig, responses: ResponsesConfig, compact_threshold: int | None, agents: AgentsPolicy | None
) -> RequestPolicy:
    return RequestPolicy(
        strict=responses.strict_parameters,
        allow_fields=frozenset(upstream.allow_fields),
        remote_images=upstream.remote_images == "forward",
        max_tools=responses.max_tools,
        max_input_items=responses.max_input_items,
        max_depth=responses.max_json_depth,
        compact_threshold=compact_threshold,
        agents=agents,
    )
