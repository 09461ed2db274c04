"""Where spans go, by the standard `OTEL_*` environment."""

from collections.abc import Mapping
from importlib.metadata import entry_points

from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter

from gateway import __version__
from gateway.telemetry import names

_EXPORTERS = "opentelemetry_traces_exporter"
_OTLP_BY_PROTOCOL = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}
_OTLP_PACKAGES = {
    "otlp_proto_http": "opentelemetry-exporter-otlp-proto-http",
    "otlp_proto_grpc": "opentelemetry-exporter-otlp-proto-grpc",
}
_RATIO_SAMPLERS = ("traceidratio", "parentbased_traceidratio")
_SAMPLERS = ("always_on", "always_off", "parentbased_always_on", "parentbased_always_off", *_RATIO_SAMPLERS)


class TracingError(ValueError):
    """The `OTEL_*` environment asks for something that is not there."""


def build_provider(environ: Mapping[str, str]) -> TracerProvider | None:
    """Build what the environment asks for; None when it names no exporter.

    The sampler, the queue of spans and the exporters read their own variables.

    Raises:
        TracingError: an exporter is named whose package is not installed, or a sampler that there is not.
    """
    exporters = [_load_exporter(name) for name in _exporter_names(environ)]
    if not exporters:
        return None
    _check_sampler(environ)
    attributes = {SERVICE_VERSION: __version__}
    if "OTEL_SERVICE_NAME" not in environ and "service.name=" not in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        attributes[SERVICE_NAME] = names.SERVICE
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _exporter_names(environ: Mapping[str, str]) -> list[str]:
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return []
    endpoint = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    asked = environ.get("OTEL_TRACES_EXPORTER", "").strip() or ("otlp" if endpoint else "none")
    exporters = [name.strip() for name in asked.split(",") if name.strip() not in {"", "none"}]
    protocol = (
        environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
        or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
        or "http/protobuf"
    )
    if "otlp" in exporters and protocol not in _OTLP_BY_PROTOCOL:
        raise TracingError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r}; use {' or '.join(_OTLP_BY_PROTOCOL)}.")
    return [_OTLP_BY_PROTOCOL[protocol] if name == "otlp" else name for name in exporters]


def _load_exporter(name: str) -> SpanExporter:
    found = next(iter(entry_points(group=_EXPORTERS, name=name)), None)
    if found is None:
        known = ", ".join(sorted({"none", "otlp", *(entry.name for entry in entry_points(group=_EXPORTERS))}))
        mend = f"install {_OTLP_PACKAGES[name]}" if name in _OTLP_PACKAGES else f"use one of {known}"
        raise TracingError(f"No trace exporter {name!r} (OTEL_TRACES_EXPORTER): {mend}.")
    exporter: SpanExporter = found.load()()
    return exporter


def _check_sampler(environ: Mapping[str, str]) -> None:
    """Refuse what the SDK would only warn of, and then trace everything."""
    sampler = environ.get("OTEL_TRACES_SAMPLER", "parentbased_always_on").lower()
    if sampler not in _SAMPLERS:
        raise TracingError(f"No trace sampler {sampler!r} (OTEL_TRACES_SAMPLER): use one of {', '.join(_SAMPLERS)}.")
    ratio = environ.get("OTEL_TRACES_SAMPLER_ARG", "")
    if sampler in _RATIO_SAMPLERS and not _is_share(ratio):
        raise TracingError(f"OTEL_TRACES_SAMPLER_ARG is {ratio!r}; {sampler} takes a share between 0 and 1.")


def _is_share(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False
