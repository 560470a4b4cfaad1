"""``tailrace compat``: asks a server, in a database of its own, what Tailrace needs of servers.

:mod:`tailrace.compat.questions` is the table of questions; :mod:`tailrace.compat.run` asks them
through the service's own parts, and :mod:`tailrace.compat.report` says what was answered. No report
has data, names or addresses of the user's.
"""
