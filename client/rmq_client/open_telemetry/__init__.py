"""OpenTelemetry for producers and consumers: spans, metrics, and the context in messages.

Needs opentelemetry-api (`pip install 'rmq[opentelemetry]'`). The application installs and configures an SDK
of OpenTelemetry. Without one nothing is recorded, and a received context travels on in the messages.

Source of the rules: OpenTelemetry's semantic conventions for messaging spans and metrics, and for RocketMQ.
"""

from __future__ import annotations

try:
    from .instrumentation import OpenTelemetry, instrument
except ModuleNotFoundError as error:
    if not (error.name or "").startswith("opentelemetry"):
        raise
    raise ImportError(
        f"rmq_client.open_telemetry needs opentelemetry-api, and {error.name} is not installed: install "
        "'rmq[opentelemetry]', or opentelemetry-api>=1.30"
    ) from error

__all__ = ["OpenTelemetry", "instrument"]
