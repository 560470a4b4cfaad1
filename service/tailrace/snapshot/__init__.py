"""Snapshots: reads the existing documents of a scope, chunk by chunk.

Each chunk is read as of the cluster time that the stream has reached
(:mod:`tailrace.engine.read`). Its documents become events of the type ``read``.
"""
