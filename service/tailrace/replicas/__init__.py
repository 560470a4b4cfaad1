"""Decides which process follows which scope, by leases in the store that the processes share.

:class:`tailrace.replicas.leases.Leases` reads and renews the leases of a process;
:class:`tailrace.replicas.leased_scope.LeasedScope` runs the watcher of one scope.
:mod:`tailrace.replicas.assignment` says which member should have which scope.
The engine enforces the end of a lease (:mod:`tailrace.engine.held_lease`).
"""
