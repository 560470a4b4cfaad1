"""The Spark job: landed segments become Delta tables that any Delta reader opens.

``segments`` finds and checks what has landed; ``decoding`` and ``changes`` append it to the log.
``lineage``, ``versions`` and ``folding`` compute the versions of each document; ``log_snapshot``
and ``publish`` write them to ``current`` and ``history``; ``quality`` counts; ``maintenance``
compacts; ``views`` are for queries. Spark writes data as Parquet, which ``delta`` commits with the
number of the last segment: that is all the state there is. ``entry`` starts a ``job``.
"""
