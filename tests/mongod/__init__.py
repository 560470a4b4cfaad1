"""MongoDB's mongod as processes of their own, for tests: a replica set with faults, a standalone.

    server = ReplicaSet(directory, members=3)
    server.fail("getMore", errorCode=43)                  # failCommand: the next one only
    server.fail_reads(11602)                              # behind the cursor: with the true label
    server.step_down()                                    # an election
    server.stop_member(server.primary(), signal.SIGKILL)  # and another one
    server.start()

Test commands are on, so fail points work. Every member keeps its port and its data over restarts.
"""

from .program import program
from .replica_set import ReplicaSet
from .servers import Client, Standalone

__all__ = ["Client", "ReplicaSet", "Standalone", "program"]
