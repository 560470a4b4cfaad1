"""Compares the rows of a destination with the source, beside the stream.

A row counts as different only if no change touched its document between the moment that the row is
known to have and the moment after it was read (:mod:`tailrace.verify.window`). Everything else is
looked at again.
"""
