"""Which process follows which scope: leases in the store that the processes share.

:class:`tailrace.replicas.leases.Leases` acquires, renews and releases them, and lets the watchers
of the scopes run meanwhile. :mod:`tailrace.replicas.assignment` says which member should have
which scope. :class:`tailrace.replicas.replay_leases.ReplayLeases` keeps two replays of dead letters
apart. What a lease forbids once it is over, the engine observes
(:mod:`tailrace.engine.held_lease`).
"""
