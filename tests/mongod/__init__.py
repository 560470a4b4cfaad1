"""MongoDB's mongod as processes for tests: a replica set with faults, and a standalone.

    server = ReplicaSet(directory, members=3)
    server.fail("getMore", errorCode=43)                  # failCommand: only the next one
    server.fail_reads(11602)                              # in the server: with the real label
    server.step_down()                                    # an election
    server.stop_member(server.primary(), signal.SIGKILL)  # and another one
    server.start()

Test commands are enabled, so fail points work. Every member keeps its port and data over restarts.
"""

from .program import program
from .replica_set import ReplicaSet
from .servers import Client, Standalone

__all__ = ["Client", "ReplicaSet", "Standalone", "program"]
