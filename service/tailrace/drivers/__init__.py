"""The adapters to MongoDB: the only modules that know a driver's network API.

Both adapters send plain ``aggregate`` and ``getMore`` commands and do not decode the replies. This
is many times cheaper than the drivers' own change streams. :mod:`tailrace.stream` resumes.
"""

from tailrace.drivers.command_driver import CommandDriver
from tailrace.drivers.motor import motor_driver
from tailrace.drivers.options import files_of, socket_seconds
from tailrace.drivers.probe import DriverFactory, identify
from tailrace.drivers.pymongo_async import pymongo_driver

DRIVERS: dict[str, DriverFactory] = {"motor": motor_driver, "pymongo": pymongo_driver}

__all__ = ["DRIVERS", "CommandDriver", "DriverFactory", "files_of", "identify", "socket_seconds"]
