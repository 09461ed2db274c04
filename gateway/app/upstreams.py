"""Builds the clients of the inference servers, and gives them another configuration."""

from collections.abc import Mapping

from gateway.app.errors import StartError
from gateway.config.certificates import CertificateFileError
from gateway.config.schema import GatewayConfig, UpstreamConfig
from gateway.telemetry.metrics import Metrics
from gateway.upstream.client import HttpUpstream
from gateway.upstream.settings import UpstreamSettings


def build_upstreams(config: GatewayConfig, metrics: Metrics) -> dict[str, HttpUpstream]:
    """Build one client for each inference server, by name.

    Raises:
        StartError: a file of certificates cannot be used.
    """
    upstreams: dict[str, HttpUpstream] = {}
    for name, upstream in config.upstream_map().items():
        try:
            upstreams[name] = HttpUpstream(_upstream_settings(upstream, config), name=name, metrics=metrics)
        except CertificateFileError as error:
            raise StartError(f"ca_file of upstream '{name}': {error}") from error
    return upstreams


def reconfigure_upstreams(upstreams: Mapping[str, HttpUpstream], config: GatewayConfig) -> None:
    """Give each client its part of another configuration; all of it is read before any client takes it."""
    configs = config.upstream_map()
    settings = {name: _upstream_settings(configs[name], config) for name in upstreams}
    for name, upstream in upstreams.items():
        upstream.reconfigure(settings[name])


def _upstream_settings(upstream: UpstreamConfig, config: GatewayConfig) -> UpstreamSettings:
    return UpstreamSettings(
        url=upstream.url,
        api_key=None if upstream.api_key is None else upstream.api_key.reveal(),
        api=upstream.api,
        dialect=upstream.dialect,
        connect_timeout=upstream.connect_timeout_seconds,
        connect_retries=upstream.connect_retries,
        retry_share=upstream.connect_retry_budget,
        longest_retry_wait=upstream.connect_retry_backoff_seconds,
        breaker_failures=upstream.breaker_failures,
        breaker_open=upstream.breaker_open_seconds,
        ca_file=upstream.ca_file,
        tls_verify=upstream.tls_verify,
        first_byte_timeout=upstream.first_byte_timeout_seconds,
        idle_timeout=upstream.idle_timeout_seconds,
        total_timeout=upstream.total_timeout_seconds,
        max_connections=upstream.max_connections,
        health_interval=upstream.health_interval_seconds,
        probe_timeout=upstream.probe_timeout_seconds,
        models_cache=upstream.models_cache_seconds,
        max_header_bytes=upstream.max_header_bytes,
        read_slice_bytes=upstream.read_slice_bytes,
        max_json_bytes=config.responses.max_upstream_json_bytes,
        max_line_bytes=config.responses.max_upstream_sse_line_bytes,
    )
