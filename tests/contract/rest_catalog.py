"""A REST catalog as a process: Iceberg's own implementation in Java, as its own tests run it.

Maven fetches its jars once per user; what else it needs is among Spark's.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from tailrace.pipeline import jars
from tests.machine import exclusive

_ARTIFACTS = jars.listed((Path(__file__).parent / "rest-catalog-jars.txt").read_text())
_OPTIONS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
_OPTIONS += ["-Dorg.apache.logging.log4j.level=OFF"]  # nobody reads the pipe of its output
_SPARK = Path(pyspark.__file__).parent / "jars"


def _jars() -> list[Path]:
    there = jars.directory().with_name("rest-catalog-jars")
    with exclusive():
        found = [*there.glob("*.jar")]
        return found if len(found) == len(_ARTIFACTS) else jars.fetch(there, _ARTIFACTS)


@contextmanager
def rest_catalog(warehouse: Path) -> Iterator[str]:
    """The address of a catalog that is empty, and forgotten at the end."""
    port, process = launch_gateway(
        jarpath=str(next(_SPARK.glob("py4j-*.jar"))),
        classpath=":".join([*map(str, _jars()), f"{_SPARK}/*"]),
        javaopts=_OPTIONS,
        return_proc=True,
    )
    java = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    try:
        yield f"http://127.0.0.1:{_served(java.jvm, warehouse)}"
    finally:
        java.close()
        process.kill()
        process.stdin.close()
        process.wait()  # py4j closes the output in a thread of its own, under a ``communicate``


def _served(jvm: Any, warehouse: Path) -> int:
    iceberg, jetty = jvm.org.apache.iceberg, jvm.org.sparkproject.jetty
    catalog = iceberg.jdbc.JdbcCatalog()
    catalog.setConf(jvm.org.apache.hadoop.conf.Configuration())
    settings = {"uri": "jdbc:h2:mem:catalog;DB_CLOSE_DELAY=-1", "warehouse": f"file://{warehouse}"}
    settings |= {"jdbc.schema-version": "V1", "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO"}
    catalog.initialize("rest", settings)
    servlet = iceberg.rest.RESTCatalogServlet(iceberg.rest.RESTCatalogAdapter(catalog))
    context = jetty.ee10.servlet.ServletContextHandler()
    context.addServlet(jetty.ee10.servlet.ServletHolder(servlet), "/*")
    server = jetty.server.Server(jvm.java.net.InetSocketAddress("127.0.0.1", 0))
    server.setHandler(context)
    server.start()
    port: int = server.getConnectors()[0].getLocalPort()
    return port
