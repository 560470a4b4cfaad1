"""The service for hours: a replica set, four destinations, faults, and curves of what grows.

``python -m tests.soak --hours 24 --rate 2000 --report DIR``. ``plan`` says what happens when,
``system`` has the processes, ``writing`` the changes, ``changes`` whether every change came,
``sampling`` the curves, ``report`` what is made of them.
"""
