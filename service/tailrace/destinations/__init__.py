"""The destinations of Tailrace, a module or a package each; :mod:`tailrace.handlers.types` has the
table of their types.

They import :mod:`tailrace.destination`, events, envelopes, plain data, errors and their client, and
nothing else of Tailrace: whoever writes a destination elsewhere has the same names.
"""
