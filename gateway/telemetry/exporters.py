"""Where spans go, by the standard `OTEL_*` environment."""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import entry_points
from typing import TypeAlias

from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from gateway import __version__
from gateway.telemetry import names

SpanCount: TypeAlias = Callable[[str, int], None]

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


class _Recorded(SpanProcessor):
    """Counts spans as they end."""

    def __init__(self, count: SpanCount) -> None:
        self._count = count

    def on_end(self, span: ReadableSpan) -> None:  # noqa: ARG002
        """Count one."""
        self._count("recorded", 1)


class _Counted(SpanExporter):
    """Counts what became of the spans that an exporter was given."""

    def __init__(self, exporter: SpanExporter, count: SpanCount) -> None:
        self._exporter = exporter
        self._count = count

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Export them, in the exporter's thread."""
        result = SpanExportResult.FAILURE
        try:
            result = self._exporter.export(spans)
        finally:
            self._count("exported" if result is SpanExportResult.SUCCESS else "failed", len(spans))
        return result

    def shutdown(self) -> None:
        """Close the exporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Export what the exporter itself holds back."""
        return self._exporter.force_flush(timeout_millis)


def build_provider(environ: Mapping[str, str], count: SpanCount) -> TracerProvider | None:
    """Build what the environment asks for; None when it names no exporter.

    The sampler, the queue of spans and the exporters read their own variables.

    Args:
        environ: the variables.
        count: told how many spans were `recorded`, `exported` or `failed`, from several threads.

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
    provider.add_span_processor(_Recorded(count))
    for exporter in exporters:
        provider.add_span_processor(BatchSpanProcessor(_Counted(exporter, count)))
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
