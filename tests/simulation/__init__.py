"""A deterministic simulation of the whole engine: one seed is one run, in virtual time.

- :mod:`event_loop`, :mod:`determinism`: the loop, and what else differs from one run to the next.
- :mod:`source`, :mod:`stores`, :mod:`destinations`: what the engine speaks to, with faults.
- :mod:`world`: what outlives a process. :mod:`process`: one process, with its leases;
  it can be killed between any two steps, or sleep without noticing.
- :mod:`operator`: orders for scopes and handlers, reloads, and the repairs that are an operator's.
- :mod:`expected`: the changes of a scope. :mod:`ledger`: what each handler must have, and what it
  must not get.
- :mod:`scenario`: what a seed chooses. :mod:`run`: one run. :mod:`coverage`: what runs covered.

``python -m tests.simulation --seeds 1000`` runs many; ``--seed 7`` runs one and prints its events.
A seed means the same run only until :mod:`scenario` changes, so what a failing seed has shown
becomes a scenario in ``test_scenarios.py``, or a test of the part that was at fault.
"""
