"""Where positions are kept: one module per store, each fulfilling ``engine.ports.CheckpointStore``.

All of them open the same way, ``async with Store.open(...) as store``, refuse writes that are not
newer in the order of (epoch, sequence), and pass one suite: ``tests/contract``. ``console`` is
what an operator does with a store.
"""
