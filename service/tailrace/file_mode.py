"""Who may read what the service writes."""

PRIVATE = 0o640
"""The mode of a new file that has, or may have, documents in it; the umask may take more away.

The group reads, so that a job under another user can be let in; nobody else does.
"""
