"""The Spark job: landed segments become Delta tables that anyone can open.

Spark does all work on data, with its own Parquet; ``delta`` commits the files that Spark wrote,
together with the number of the last segment in them, which is all the state there is. ``segments``
finds and checks what has landed, ``decoding`` and ``changes`` make the log of it, ``lineage``,
``versions`` and ``folding`` say what a key's events mean, ``landed`` and ``state`` publish that as
``current`` and ``history``; ``observation`` and ``quality`` count. ``views`` are for queries, with
the typed ``columns`` that the configuration declares. ``job`` ties a run together, ``entry`` starts
it.

Stands apart from the daemon: it shares the lake's format, pure functions of the model,
configuration and errors. Only this package imports pyspark, and only it commits to Delta tables.
"""
