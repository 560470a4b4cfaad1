"""What is measured every ten seconds: processes, the service's metrics, its pages."""

from __future__ import annotations

import csv
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import psutil
from prometheus_client.parser import text_string_to_metric_families

from tests.background import in_background
from tests.soak.system import SoakSystem

SERVICE = "service"
_MB = 2**20
_PAGES = ("/", "/status", "/metrics")
_GAUGES = {
    "tailrace_lag_seconds": "lag",
    "tailrace_in_flight_events": "in flight events",
    "tailrace_in_flight_bytes": "in flight bytes",
    "tailrace_streams_open": "streams open",
    "tailrace_checkpoint_age_seconds": "checkpoint age s",
    "tailrace_dead_letters_waiting": "dead letters",
}

Row = tuple[float, str, int, str, float]
"""Seconds since the start, process, its pid, curve, value."""


class SoakSampler:
    """A thread that appends to ``samples.csv``, and reads the changes that were delivered."""

    def __init__(self, system: SoakSystem, directory: Path, every: float, begin: float) -> None:
        self.errors: list[str] = []
        self._system = system
        self._path = directory / "samples.csv"
        self._every = every
        self._begin = begin
        self._cpu: dict[int, tuple[float, float]] = {}
        self._over = threading.Event()

    @contextmanager
    def going_on(self) -> Iterator[None]:
        with (
            self._path.open("w", newline="") as file,
            in_background(partial(self._sample_all, file), self._over, "samples"),
        ):
            yield

    def _sample_all(self, file: TextIO) -> None:
        writer = csv.writer(file)
        while not self._over.wait(self._every):
            try:
                for row in (*self._processes(), *self._service()):
                    writer.writerow((f"{row[0]:.2f}", *row[1:4], f"{row[4]:.6g}"))
                file.flush()
                self._system.read_changes()
            except (OSError, ValueError, psutil.Error) as error:  # what is just being restarted
                self.errors.append(f"{time.monotonic() - self._begin:.0f} s: {error!r}")

    def _processes(self) -> Iterator[Row]:
        now = time.monotonic()
        measured: dict[str, dict[str, float]] = {}
        pids: dict[str, int] = {}
        for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
            try:
                name = self._name(process)
                values = {} if name is None else self._values(process, now)
            except psutil.NoSuchProcess:
                continue
            if name is not None:
                pids.setdefault(name, process.pid)
                total = measured.setdefault(name, dict.fromkeys(values, 0.0))
                for curve, value in values.items():
                    total[curve] = total.get(curve, 0.0) + value
        for name, values in measured.items():
            for curve, value in values.items():
                yield now - self._begin, name, pids[name], curve, value

    def _name(self, process: psutil.Process) -> str | None:
        if process.pid == psutil.Process().pid:
            return "this program"
        if process.pid == self._service_pid():
            return SERVICE
        program = process.name()
        if program == "mongod":
            arguments = process.cmdline()
            return f"mongod {Path(arguments[arguments.index('--dbpath') + 1]).name}"
        return {"postgres": "postgresql", "redis-server": "redis"}.get(program)

    def _values(self, process: psutil.Process, now: float) -> dict[str, float]:
        with process.oneshot():
            times = process.cpu_times()
            used = times.user + times.system
            before, self._cpu[process.pid] = self._cpu.get(process.pid), (now, used)
            values = {
                "RSS MB": process.memory_info().rss / _MB,
                "threads": float(process.num_threads()),
                "descriptors": float(process.num_fds()),
            }
        if before is not None:
            values["CPU %"] = 100 * (used - before[1]) / (now - before[0])
        return values

    def _service_pid(self) -> int:
        process = self._system.run.process
        return 0 if process is None else process.pid

    def _service(self) -> Iterator[Row]:
        pid = self._service_pid()
        for page in _PAGES:
            began = time.monotonic()
            status, text = self._system.run.get(page)
            now = time.monotonic()
            if status == 200:
                yield now - self._begin, SERVICE, pid, f"GET {page} ms", 1000 * (now - began)
            if status == 200 and page == "/metrics":
                for curve, value in _gauges(text).items():
                    yield now - self._begin, SERVICE, pid, curve, value


def _gauges(text: str) -> dict[str, float]:
    values: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        name = _GAUGES.get(family.name)
        for sample in family.samples if name else ():
            labels = _told(sample.labels)
            values[" ".join([str(name), *labels])] = sample.value
    return values


def _told(labels: dict[str, Any]) -> list[str]:
    return [value for label, value in sorted(labels.items()) if label in ("handler", "stage")]
