"""OpenTelemetry: the spans of a process.

:mod:`tailrace.telemetry.opening` opens what the settings name; only the modules that it imports
then know opentelemetry. ``spans`` makes and ends spans, ``source``, ``calls`` and ``store`` put
them around what :mod:`tailrace.tracing` names, and ``exporting`` says once
that a collector is away.
"""
