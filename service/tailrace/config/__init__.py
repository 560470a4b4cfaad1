"""The configuration: read once, checked as a whole, frozen.

It knows no driver and no handler: others find out whether the server answers and whether a python
target can be imported.

``document`` reads YAML with variables; ``settings`` and the modules that it imports are the models;
``checks`` compares sections; ``messages`` words the problems; ``loading`` joins them.
"""

from tailrace.config.loading import load, loads, masked
from tailrace.config.settings import Settings, schema

__all__ = ["Settings", "load", "loads", "masked", "schema"]
