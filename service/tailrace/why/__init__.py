"""What became of a document: its last changes, and where each of them is now.

Nothing is recorded for this on the path of a change. The server's oplog, the dead letters and the
lake say which changes there were; the checkpoint, and what the process has in flight, say how far
each of them came. :class:`~tailrace.why.inquiry.Inquiry` puts the answer together.
"""
