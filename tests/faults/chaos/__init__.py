"""The service is killed and stopped again and again, among other faults, while writers count.

``python -m tests.faults.chaos`` (or ``make chaos``) prints what came of it, by fault and handler.
``history`` is what was written and what arrived; ``account`` says what is wrong between the two,
``snapshots`` what is wrong with the documents that were read beside; all are pure. ``writers``
writes and knows what was written; ``service`` is the process that is ended, its handlers are
``destinations``, its positions ``checkpoints``; ``faults`` is what else happens, to ``network``,
``disk`` and servers; ``campaign`` puts them together; ``report`` prints.
"""
