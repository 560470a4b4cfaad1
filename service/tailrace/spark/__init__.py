"""A data source of Spark over the lake: ``spark.read.format("tailrace")``, and ``readStream``.

It is Python alone, without a jar and without access to Java, for Spark 4.2 and later. Spark sends
the class in ``data_source`` to its Python processes; all else is imported there. ``options`` reads
the options, ``landed`` finds segments, ``offsets`` limits batches, ``planning`` divides them,
``reading`` and the module of a view read them, and ``values`` converts keys and documents. For the
view ``changes``, ``earlier`` folds earlier segments to a ``current_state``.
"""

from pyspark.sql import SparkSession

from tailrace.spark.data_source import data_source


def register(spark: SparkSession) -> None:
    """Makes the format ``tailrace`` known to a session."""
    spark.dataSource.register(data_source())
