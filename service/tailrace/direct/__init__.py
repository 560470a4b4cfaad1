"""Change streams straight into Spark, for development: ``spark.readStream.format("tailrace")``.

>>> from tailrace.direct import TailraceSource
>>> spark.dataSource.register(TailraceSource)
>>> changes = spark.readStream.format("tailrace").option("uri", uri).load()

``options`` checks what the reader is told, ``offset`` is what Spark's checkpoint keeps,
``follower`` reads a stream from one offset to the next, ``rows`` gives its events the columns of
the table ``changes``, ``source`` is what Spark calls.

Stands above the stream and the drivers, whose code it uses, and beside the daemon, whose lake is
the production path: here one process reads, and the oplog is the only memory.
"""

from tailrace.direct.source import TailraceSource

__all__ = ["TailraceSource"]
