"""Where events lie that a handler could not handle: ``engine.ports.DeadLetterStore``, by store.

Letters are sequenced: behind the first one of a key, later events of that key join the queue until
all are replayed or discarded. All stores open the same way, ``async with Store.open(...) as
store``, and pass one suite: ``tests/contract/test_dead_letter_store.py``. ``console`` is what an
operator does with the letters.
"""
