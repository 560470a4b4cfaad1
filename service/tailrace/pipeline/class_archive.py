"""The archive of the classes that a run loads: Spark starts with it in half of the CPU time.

Java maps the file (class-data sharing, https://openjdk.org/jeps/350) instead of loading and
verifying the classes of 250 jars. It suits only the Java and the jars with which it was written;
Java itself checks that, says so, and starts without it. :mod:`tailrace.pipeline.training_run`
writes it.

Java 19 and newer can write such a file at the end of any run (``-XX:+AutoCreateSharedArchive``).
That run would take twice the CPU time (77 s in place of 37), nobody may write the file in an image,
and Debian 12 has Java 17: a run on a small lake took 39 s without the archive, and 29 s with it.
"""

import sys
from pathlib import Path

from pyspark.version import __version__ as spark_version


def path() -> Path:
    """Where the archive is, or will be: in the environment of Python, as Spark's jars are."""
    return Path(sys.prefix, "share", "tailrace", f"spark-{spark_version}.jsa")


def options() -> list[str]:
    """Java's option to use the archive; none if it was not written."""
    archive = path()
    return [f'"-XX:SharedArchiveFile={archive}"'] if archive.is_file() else []
