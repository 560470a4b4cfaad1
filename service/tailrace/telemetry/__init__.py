"""OpenTelemetry: the spans of a process, and its metrics by OTLP.

:mod:`tailrace.telemetry.opening` opens what the settings name; only the modules that it imports
then know opentelemetry. ``spans`` makes and ends spans, ``source``, ``calls`` and ``store`` put
them around what :mod:`tailrace.tracing` names, ``metrics`` sends the registry, and
``exporting`` says once that a collector is away.
"""
