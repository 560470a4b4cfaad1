"""A Python for Spark whose processes connect to Spark first, and import PySpark then.

Spark waits ten seconds for the processes that plan a stream, whatever its settings say, and to
import PySpark takes longer on a machine with many tests. So a program that :func:`python` writes
stands in for Python.
"""

import os
import runpy
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def python(directory: Path) -> Path:
    """Writes the program."""
    program = directory / "python"
    program.write_text(f"#!{sys.executable}\n{Path(__file__).read_text()}")
    program.chmod(0o755)
    return program


def _connected(port: int, secret: bytes) -> socket.socket:
    """A connection to Spark, which knows then who has connected."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(len(secret).to_bytes(4, "big") + secret)
    answer = connection.recv(6, socket.MSG_WAITALL)
    if answer != b"\0\0\0\2ok":
        raise SystemExit(f"Spark has answered {answer!r}")
    return connection


def _run(arguments: list[str]) -> None:
    """Runs Python with these arguments."""
    port = os.environ.get("PYTHON_WORKER_FACTORY_PORT")
    if arguments[:1] != ["-m"] or port is None:
        os.execv(sys.executable, [sys.executable, *arguments])
    early = _connected(int(port), os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode())
    sys.path[0] = ""
    from pyspark import util

    connect: Callable[..., Any] = util.local_connect_and_auth

    def connected(to: str | int | None, secret: str | None) -> Any:
        return (early.makefile("rwb", 65536), early) if to == int(port) else connect(to, secret)

    util.local_connect_and_auth = connected
    sys.argv = arguments[1:]
    runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _run(sys.argv[1:])
