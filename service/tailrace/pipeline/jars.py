"""The jars with which Spark reaches S3: a pinned list, fetched by Maven and checked by hash.

Spark's own package has none of them. ``jars.txt`` has hadoop-aws in the version of Spark's Hadoop,
and the modules of the AWS SDK that it needs, without the SDK's bundle of all services (600 MB).
What Spark has itself (netty, Apache's HTTP client) is not in the list.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from importlib import resources
from pathlib import Path

from tailrace.errors import PipelineRefused, describe

VARIABLE = "TAILRACE_SPARK_JARS"
"""The environment variable that names the directory of the jars."""

_SECONDS = 600.0
"""The time limit of Maven, which fetches 13 MB."""

_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


def pinned() -> dict[str, str]:
    """The SHA-256 of each artifact for S3, by ``group:artifact:version``, and its classifier."""
    return listed((resources.files("tailrace.pipeline") / "jars.txt").read_text())


def listed(text: str) -> dict[str, str]:
    """A list of artifacts: one a line, with its SHA-256 after a space."""
    return dict(line.split(" ") for line in text.splitlines())


def directory() -> Path:
    """Where the jars are, or will be: in the cache of this user if no variable names another."""
    if named := os.environ.get(VARIABLE):
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "tailrace", "spark-jars")


def s3_jars() -> list[Path]:
    """The jars. Raises :class:`PipelineRefused` if one is not there."""
    there = directory()
    jars = [there / _file(artifact) for artifact in pinned()]
    missing = [path.name for path in jars if not path.is_file()]
    if missing:
        raise PipelineRefused(
            f"{there}: Spark needs {len(jars)} jars for s3://, and {len(missing)} are not there "
            f"({missing[0]}). Fetch them with: tailrace pipeline --fetch-jars"
        )
    return jars


def fetch(there: Path, artifacts: Mapping[str, str]) -> list[Path]:
    """Puts the jars into a directory; returns their paths.

    Raises :class:`PipelineRefused` if they cannot be fetched, or one has another hash.
    """
    maven = shutil.which("mvn")
    if maven is None:
        message = "the jars are fetched by Maven, and there is no mvn: apt-get install maven"
        raise PipelineRefused(message)
    there.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=there) as fresh:
        Path(fresh, "pom.xml").write_text(_project(artifacts))
        command = [maven, "--quiet", "--batch-mode", _COPY, f"-DoutputDirectory={fresh}/jars"]
        try:
            done = subprocess.run(  # noqa: S603 - Maven, with a file that was written just now
                command, cwd=fresh, capture_output=True, text=True, timeout=_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise PipelineRefused(f"{maven}: does not run: {describe(error)}") from error
        for artifact, expected in artifacts.items():
            jar = Path(fresh, "jars", _file(artifact))
            if not jar.is_file():
                lines = [line for line in done.stdout.splitlines() if "ERROR" in line]
                why = lines[0][:300] if lines else "it printed no error"
                raise PipelineRefused(f"Maven could not fetch {artifact}: {why}")
            digest = hashlib.sha256(jar.read_bytes()).hexdigest()
            if digest != expected:
                raise PipelineRefused(
                    f"{artifact}: its SHA-256 is {digest}, not {expected}: it was not used"
                )
            jar.replace(there / jar.name)
    return [there / _file(artifact) for artifact in artifacts]


def _file(artifact: str) -> str:
    return "-".join(artifact.split(":")[1:]) + ".jar"


def _project(artifacts: Mapping[str, str]) -> str:
    """A Maven project that depends on just these artifacts."""
    nothing_else = (
        "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
        "</exclusions>"
    )
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
        f"<version>{version}</version>{''.join(f'<classifier>{kind}</classifier>' for kind in of)}"
        f"{nothing_else}</dependency>"
        for group, name, version, *of in (artifact.split(":") for artifact in artifacts)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>tailrace</groupId><artifactId>spark-jars</artifactId><version>1</version>"
        f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>\n"
    )
