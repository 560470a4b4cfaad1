"""Kills and stops the service again and again, among other faults, while writers count.

``python -m tests.faults.chaos`` (or ``make chaos``) prints the results by fault and by handler.
``history`` holds what was written and what arrived; ``account`` compares the two, and ``snapshots``
checks the rows of snapshots; these three are pure. ``writers`` writes and records it. ``service``
is the process under test, with its handlers in ``destinations`` and its positions in
``checkpoints``. ``faults`` are faults of ``network``, ``disk`` and servers. ``campaign`` runs it
all, and ``report`` prints.
"""
