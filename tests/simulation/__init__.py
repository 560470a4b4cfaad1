"""A deterministic simulation of the whole engine: one seed is one run, in virtual time.

- :mod:`event_loop`, :mod:`determinism`: the loop, and what else differs from one run to the next.
- :mod:`source`, :mod:`stores`, :mod:`destinations`: what the engine speaks to, with faults.
- :mod:`process`: one process of the service, which can be killed between any two steps.
- :mod:`ledger`: what each handler must have, and what it must not get.
- :mod:`scenario`: what a seed chooses. :mod:`run`: one run. :mod:`coverage`: what runs covered.

``python -m tests.simulation --seeds 1000`` runs many; ``--seed 7`` runs one and prints its events.
A seed means the same run only until :mod:`scenario` changes, so what a failing seed has shown
becomes a test of its own, of the part that was at fault.
"""
