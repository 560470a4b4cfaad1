"""The configuration: read once, checked as a whole, frozen.

:func:`load` reads a file and reports every problem at once, each with its path. :func:`masked` and
:func:`schema` are for people and editors. Knows no driver and no handler: others find out whether
the server answers and whether a python target can be imported.

``document`` reads YAML with variables; ``settings`` and the modules that it imports are the models;
``checks`` compares sections; ``messages`` words the problems; ``loading`` joins them.
"""

from tailrace.config.loading import load, loads, masked
from tailrace.config.settings import Settings, schema

__all__ = ["Settings", "load", "loads", "masked", "schema"]
