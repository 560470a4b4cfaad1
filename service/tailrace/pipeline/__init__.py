"""The Spark job: turns landed segments into Delta tables that any Delta reader opens.

``segments`` finds and checks landed segments; ``decoding`` and ``log_files`` make files of the log
of them, which ``log_commit`` adds to ``changes``. ``lineage``, ``versions`` and ``folding`` compute
versions of each document; ``log_snapshot`` and ``publish`` write them to ``current`` and
``history``, and small ones in a ``shared_job``; ``quality`` counts; ``maintenance`` compacts;
``views`` are for queries.
Spark or ``partition_files`` write Parquet files, ``bounds`` tells what is in them, and a store of
``tables`` commits them with the number of the last segment. The job has no other state. ``entry``
finds out whether there is work, and ``job_run`` runs a ``job``.
"""
