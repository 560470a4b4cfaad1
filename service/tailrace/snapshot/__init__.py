"""The documents that were there before the stream: what is read of them, chunk by chunk.

A chunk is read as of a cluster time at which the stream stands
(:mod:`tailrace.engine.read.rows`), and becomes events of the type ``read``.
"""
