"""The Spark job: landed segments become Delta tables that any Delta reader opens.

Spark reads and writes the data as Parquet. ``delta`` commits the files that Spark wrote, with the
number of the last segment in them, which is all the state there is. ``segments`` finds and checks
what has landed; ``decoding`` and ``changes`` append it to the log. ``lineage``, ``versions`` and
``folding`` compute the versions of each document; ``log_snapshot`` and ``publish`` write them to
``current`` and ``history``; ``observation`` and ``quality`` count; ``maintenance`` compacts.
``views`` are for queries, with the ``typed_columns`` that the configuration declares. ``job`` is
one run, ``entry`` starts it.

Stands apart from the daemon: it shares the lake's format, pure functions of the model,
configuration and errors. Only this package imports pyspark, and only it commits to Delta tables.
"""
