"""From another tool to Tailrace: its configuration and its resume token become one of ours.

``peer_file`` reads the file; ``debezium``, ``mongo_kafka`` and ``redpanda`` translate one peer
each into a ``conversion``; ``offsets`` finds the resume token, and ``preview`` shows what comes
after it. The command line stands above.
"""
