"""What must be on this machine before Spark starts: a Spark of a known version, and Java."""

import os
import re
import shutil
import subprocess
from importlib import metadata

from tailrace.errors import PipelineRefused, describe

OLDEST_SPARK, FIRST_UNKNOWN_SPARK = (4, 2), (4, 4)
"""The versions with which the pipeline was run: from the first one, to before the second one."""

OLDEST_JAVA = 17
"""The oldest Java that Spark 4 supports (https://spark.apache.org/docs/latest/)."""


def require_spark() -> None:
    """Raises :class:`PipelineRefused` unless pyspark has a known version.

    Raises ``ModuleNotFoundError`` without pyspark.
    """
    version = _spark_version()
    release = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if OLDEST_SPARK <= release < FIRST_UNKNOWN_SPARK:
        return
    age = "too old" if release < OLDEST_SPARK else "newer than what was tested"
    oldest, newest = (".".join(map(str, each)) for each in (OLDEST_SPARK, FIRST_UNKNOWN_SPARK))
    raise PipelineRefused(
        f"Spark {version} is {age}: the pipeline needs pyspark >={oldest},<{newest}"
    )


def _spark_version() -> str:
    """From the metadata: to import pyspark takes as long as to find that nothing is to do."""
    try:
        return metadata.version("pyspark")
    except metadata.PackageNotFoundError:  # PYTHONPATH leads to Spark's own copy, without metadata
        import pyspark

        return pyspark.__version__


def require_java() -> None:
    """Raises :class:`PipelineRefused` unless the Java that Spark would start is new enough."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME={home} has none" if home else "there is none on the PATH"
        raise PipelineRefused(
            f"the pipeline needs Java {OLDEST_JAVA} or newer, and {where}. On Debian: "
            "apt-get install openjdk-17-jre-headless"
        )
    try:
        answer = subprocess.run(  # noqa: S603 - the Java that Spark itself would start
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PipelineRefused(f"{java}: does not run: {describe(error)}") from error
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if version is None or int(version[1]) < OLDEST_JAVA:
        reported = f"is Java {version[1]}" if version else "does not print its version"
        raise PipelineRefused(
            f"{java}: {reported}; the pipeline needs {OLDEST_JAVA} or newer. Set JAVA_HOME to one"
        )
