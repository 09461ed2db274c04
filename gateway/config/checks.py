"""What one key cannot tell: rules and surprises between several."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import combinations
from typing import Final

from gateway.config.addresses import is_loopback, is_wildcard, split_bind
from gateway.config.agents import doubt_agents, review_agents
from gateway.config.certificates import CertificateFileError, present_files, read_expiry, trust_file
from gateway.config.findings import DEFAULT, Finding, KeyPath, Origin
from gateway.config.mcp_servers import review_servers
from gateway.config.schema import GatewayConfig, UpstreamConfig
from gateway.config.search_provider import review_web_search
from gateway.config.tree import env_label, format_path
from gateway.config.units import KIB, format_size

_CREDENTIAL_HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization", "x-api-key"})
_EXPIRY_NOTICE: Final = timedelta(days=14)
_UPSTREAM_NAME_HELP = "write letters, digits and single - or _, such as fast-gpu"


class Review:
    """Examines a whole configuration.

    Attributes:
        problems: findings that forbid it, each with every key whose value is involved.
        warnings: findings that do not.
    """

    def __init__(self, config: GatewayConfig, origins: Mapping[KeyPath, Origin]) -> None:
        self._config = config
        self._origins = origins
        self.problems: list[tuple[Finding, set[KeyPath]]] = []
        self.warnings: list[tuple[Finding, set[KeyPath]]] = []

    def run(self) -> None:
        """Run every check."""
        self._check_listeners()
        self._check_certificate()
        self._check_access()
        self._check_oidc()
        self._check_workers()
        self._check_sealing()
        self._check_upstream_names()
        for name, upstream in self._config.upstream_map().items():
            path = ("upstreams", name) if self._config.upstreams else ("upstream",)
            self._check_upstream(path, upstream)
        self._check_routing()
        self._check_limits()
        self._check_websocket()
        self._check_search()
        config = self._config
        for message, *paths in (
            *(*review_web_search(config.web_search), *review_servers(config.mcp)),
            *review_agents(config.multi_agent),
        ):
            self._problem(message, *paths)
        for message, *paths in doubt_agents(config.multi_agent, config.storage):
            self._warning(message, *paths)

    def _problem(self, message: str, *paths: KeyPath) -> None:
        self.problems.append((self._finding(message, paths), set(paths)))

    def _warning(self, message: str, *paths: KeyPath) -> None:
        """Warn, but only where the user set one of the keys: the shipped defaults are right by definition."""
        if any(self._origin(path) for path in paths):
            self.warnings.append((self._finding(message, paths), set(paths)))

    def _finding(self, message: str, paths: tuple[KeyPath, ...]) -> Finding:
        """Blame the first key that somebody set."""
        blamed, origin = next(((path, origin) for path in paths if (origin := self._origin(path))), (paths[0], DEFAULT))
        return Finding(path=format_path(blamed), message=message, source=str(origin))

    def _origin(self, path: KeyPath) -> Origin | None:
        """Where the key, or the first key of the table, was set."""
        return next((origin for known, origin in self._origins.items() if known[: len(path)] == path), None)

    def _check_listeners(self) -> None:
        server, admin = self._config.server, self._config.admin
        host, port = split_bind(admin.bind)
        bind, remote = ("admin", "bind"), ("admin", "allow_remote")
        if admin.enabled and not is_loopback(host) and not admin.allow_remote:
            self._problem(
                f"{host} is reachable from other machines and the admin listener asks nobody for a key; "
                "bind a loopback address or set admin.allow_remote = true",
                bind,
                remote,
            )
        same_host = host == server.host or is_wildcard(host) or is_wildcard(server.host)
        if admin.enabled and same_host and port == server.port != 0:
            self._problem(f"port {port} is also server.port; choose another", bind, ("server", "port"))
        if not is_loopback(server.host) and not server.allowed_hosts:
            self._warning(
                "other machines reach the gateway and any Host header is accepted, also one that a web page made up "
                "by DNS rebinding; list the names and addresses that callers use in server.allowed_hosts",
                ("server", "host"),
                ("server", "allowed_hosts"),
            )

    def _check_certificate(self) -> None:
        server = self._config.server
        cert, key = ("server", "tls_cert_file"), ("server", "tls_key_file")
        if server.tls_cert_file is None or server.tls_key_file is None:
            if server.tls_cert_file is not None:
                self._problem("the private key is missing; name its file in server.tls_key_file", cert)
            elif server.tls_key_file is not None:
                self._problem("the certificate is missing; name its file in server.tls_cert_file", key)
            return
        try:
            present_files(server.tls_cert_file, server.tls_key_file)
            left = read_expiry(server.tls_cert_file) - datetime.now(UTC)
        except CertificateFileError as error:
            self._problem(str(error), cert, key)
            return
        if left < timedelta():
            self._warning("the certificate has expired, and clients refuse it; renew it, then send SIGHUP", cert)
        elif left < _EXPIRY_NOTICE:
            self._warning(f"the certificate expires in {left.days} days; renew it, then send SIGHUP", cert)

    def _check_access(self) -> None:
        server, auth = self._config.server, self._config.auth
        if auth.mode == "none" and not is_loopback(server.host) and not auth.allow_unauthenticated:
            self._problem(
                f"{server.host} is reachable from other machines and nobody is asked for a key; set auth.mode, bind a "
                "loopback address, or set auth.allow_unauthenticated = true",
                ("server", "host"),
                ("auth", "mode"),
                ("auth", "allow_unauthenticated"),
            )
        header, proxies = ("auth", "trusted_principal_header"), ("auth", "trusted_proxies")
        if auth.trusted_principal_header and not auth.trusted_proxies:
            self._problem("no proxy is trusted with it; name them in auth.trusted_proxies", header, proxies)
        if auth.trusted_proxies and not auth.trusted_principal_header:
            self._problem("nothing is believed of them; name the header in auth.trusted_principal_header", proxies)

    def _check_workers(self) -> None:
        if self._config.server.workers > 1 and self._config.storage.url.reveal().startswith("sqlite"):
            self._problem(
                "several workers need a database that they can share; set storage.url to postgresql://… or "
                "server.workers to 1",
                ("server", "workers"),
                ("storage", "url"),
            )

    def _check_sealing(self) -> None:
        """Refuse to seal with a key that other replicas, or the next start, would not have."""
        config = self._config
        if config.compaction.mode != "on" or config.security.seal_keys is not None:
            return
        if not config.storage.url.reveal().startswith("sqlite"):
            self._problem(
                "replicas of a PostgreSQL database need sealing keys of their own; make one with `gateway keys "
                "seal-key` and name it in security.seal_keys_file, or set compaction.mode to auto or off",
                ("compaction", "mode"),
                ("security", "seal_keys"),
                ("storage", "url"),
            )

    def _check_oidc(self) -> None:
        oidc = self._config.oidc
        if self._config.auth.mode != "oidc":
            return
        for name, lack in (
            ("issuer", "set it to the URL of the issuer whose tokens count"),
            ("audiences", "list what the issuer calls this gateway; else tokens meant for others would count here"),
            ("algorithms", "list at least one"),
            ("principal_claim", "name the claim that tells callers apart, such as sub"),
        ):
            if not getattr(oidc, name):
                self._problem(f"oidc.{name} is empty, and auth.mode is oidc; {lack}", ("oidc", name), ("auth", "mode"))
        if oidc.ca_file is not None:
            try:
                trust_file(oidc.ca_file)
            except CertificateFileError as error:
                self._problem(str(error), ("oidc", "ca_file"))

    def _check_upstream_names(self) -> None:
        names = list(self._config.upstreams)
        short = next((path for path in self._origins if path[0] == "upstream"), None)
        if names and short:
            # Whatever the values are worth, they stand in the wrong place.
            message = "[upstream] and [upstreams] are both set; move the former to [upstreams.default]"
            self.problems.append((self._finding(message, (short,)), set()))
        for name in names:
            if not name.isascii() or not all(part.isalnum() for part in name.replace("-", "_").split("_")):
                self._problem(f"{name!r} cannot name an upstream; {_UPSTREAM_NAME_HELP}", ("upstreams", name))
        for one, other in combinations(names, 2):
            if env_label(one) == env_label(other):
                self._problem(
                    f"environment variables cannot tell it from {one!r}; rename one of them", ("upstreams", other)
                )

    def _check_upstream(self, path: KeyPath, upstream: UpstreamConfig) -> None:
        total = (*path, "total_timeout_seconds")
        for name in ("first_byte_timeout_seconds", "idle_timeout_seconds"):
            if getattr(upstream, name) > upstream.total_timeout_seconds:
                self._warning(f"{name} is above total_timeout_seconds and never takes effect", (*path, name), total)
        for alias, model in upstream.aliases.items():
            if upstream.models and model not in upstream.models:
                self._warning(
                    f"stands for {model!r}, which is not among the models of this upstream",
                    (*path, "aliases", alias),
                    (*path, "models"),
                )
        for header in sorted(_CREDENTIAL_HEADERS & set(upstream.forward_headers)):
            self._warning(f"{header} carries callers' credentials to the inference server", (*path, "forward_headers"))
        claim = self._config.auth.trusted_principal_header
        if claim is not None and claim in upstream.forward_headers:
            self._problem(
                f"{claim} is auth.trusted_principal_header, which anybody may send; it is for the gateway alone",
                (*path, "forward_headers"),
            )
        if upstream.api_key and max(upstream.api_key.reveal()) > "\xff":
            self._problem("holds a character that no header can carry; keys are ASCII", (*path, "api_key"))
        if upstream.api_key and "authorization" in upstream.forward_headers:
            self._problem("authorization is set from api_key; forward only one", (*path, "forward_headers"))

        self._check_tls(path, upstream)

    def _check_tls(self, path: KeyPath, upstream: UpstreamConfig) -> None:
        url, ca_file, verify = ((*path, name) for name in ("url", "ca_file", "tls_verify"))
        if upstream.ca_file is not None:
            try:
                trust_file(upstream.ca_file)
            except CertificateFileError as error:
                self._problem(str(error), ca_file)
        if not upstream.url.startswith("https:"):
            if upstream.ca_file is not None:
                self._warning("never takes effect, because url is not https", ca_file, url)
        elif not upstream.tls_verify:
            self._warning(
                "the inference server's certificate is not checked: whoever is on the way can read and change "
                "everything, api_key included; name its authority in ca_file instead",
                verify,
            )
            if upstream.ca_file is not None:
                self._warning("never takes effect, because tls_verify is false", ca_file, verify)

    def _check_routing(self) -> None:
        answering: dict[str, list[str]] = defaultdict(list)
        for name, upstream in self._config.upstreams.items():
            for model in {*upstream.models, *upstream.aliases} or {""}:
                answering[model].append(name)
        for model, names in answering.items():
            if len(names) > 1:
                what = f"the model {model!r}" if model else "every model"
                self._warning(
                    f"{' and '.join(names)} answer for {what}; say in models which upstream serves what",
                    *(("upstreams", name) for name in reversed(names)),
                )

    def _check_search(self) -> None:
        if self._config.web_search.provider == "off":
            self._warning(
                "never takes effect, because web_search.provider is off; name one of searxng, brave, tavily",
                ("web_search", "url"),
                ("web_search", "api_key"),
            )

    def _check_limits(self) -> None:
        limits = self._config.responses
        retained, event = ("responses", "max_retained_bytes"), ("responses", "max_stream_event_bytes")
        if limits.max_stream_event_bytes < limits.max_retained_bytes:
            self._warning(
                f"max_stream_event_bytes ({format_size(limits.max_stream_event_bytes)}) is below max_retained_bytes "
                f"({format_size(limits.max_retained_bytes)}): a streamed response whose last event, which repeats it "
                "whole, is larger than one event fails, although it succeeds as JSON",
                event,
                retained,
            )
        if limits.max_stream_event_bytes < KIB:
            self._warning("below 1 KiB hardly any event fits, and streams end in a bare error", event)
        for name, what in (
            ("max_upstream_json_bytes", "a JSON answer"),
            ("max_upstream_sse_line_bytes", "a streamed answer, which ends with one line that repeats it whole,"),
        ):
            if getattr(limits, name) < limits.max_retained_bytes:
                self._warning(
                    f"{name} is below max_retained_bytes: {what} fails before it reaches the latter",
                    ("responses", name),
                    retained,
                )
        if self._config.storage.history_max_bytes < limits.max_retained_bytes:
            self._warning(
                "storage.history_max_bytes is below responses.max_retained_bytes: the largest responses are stored "
                "but can never be continued",
                ("storage", "history_max_bytes"),
                retained,
            )

    def _check_websocket(self) -> None:
        bounds = self._config.websocket
        for inner, outer, effect in (
            ("max_message_bytes", "max_outstanding_bytes", "the largest creates are always refused with 429"),
            ("max_checkpoint_bytes", "max_session_bytes", "a history of that size is never kept"),
        ):
            if getattr(bounds, inner) > getattr(bounds, outer):
                self._warning(f"{inner} is above {outer}: {effect}", ("websocket", inner), ("websocket", outer))
        if bounds.max_active > bounds.max_outstanding:
            self._warning(
                "max_active is above max_outstanding, and never reached",
                ("websocket", "max_active"),
                ("websocket", "max_outstanding"),
            )
