"""The service is killed again and again, among other faults, while eight writers count.

``python -m tests.faults.chaos`` (or ``make chaos``) prints a table of the faults and what came of
them. ``history`` is what must be true of it all in the end, and pure; ``writers`` writes and knows
what was written; ``service`` is the process that is killed; ``faults`` is what else happens;
``campaign`` puts them together.
"""
