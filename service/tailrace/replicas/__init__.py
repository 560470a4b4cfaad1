"""Decides which process follows which scope, by leases in the store that the processes share.

:class:`tailrace.replicas.leases.Leases` acquires and renews leases;
:class:`tailrace.replicas.turns.Turns` runs the watchers of their scopes and releases them.
:mod:`tailrace.replicas.assignment` says which member should have which scope.
:class:`tailrace.replicas.replay_leases.ReplayLeases` prevents concurrent replays of dead letters.
The engine enforces the end of a lease (:mod:`tailrace.engine.held_lease`).
"""
