"""What spans cost an event: contenders without them and with them, in turns.

``python -m tests.bench.traces [--runs 5] [--scale 2]``. Exit code 1: more than 5 % an event, or no
spans came: they are sent after five seconds, and a run must last longer, to have that in it. The
least of the runs counts: other work on the machine makes a run dearer, never cheaper.
Without the section `telemetry` nothing is put around anything, so there is no third contender.
"""

import argparse
from dataclasses import replace

from tests.bench import contenders
from tests.bench.__main__ import STANDARD
from tests.bench.comparison import compare
from tests.bench.processes import Source
from tests.otlp import collecting

MOST = 1.05
_MEASURED = (contenders.EVENT, contenders.EVENTS, contenders.RAW)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.traces", description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="of each contender, by turns")
    parser.add_argument("--scale", type=float, default=2.0, help="length of a run")
    options = parser.parse_args()
    source = Source(*STANDARD)
    missed = False
    try:
        with collecting() as collector:
            sections, before = {"telemetry": {"endpoint": collector.url}}, 0
            for plain in _MEASURED:
                traced = replace(plain, name=f"{plain.name}-traced", sections=sections)
                off, on = compare(source, [plain, traced], options.runs, options.scale)
                least, with_spans = (min(s.cpu_per_million for s in row.spans) for row in (off, on))
                ratio = with_spans / least
                missed |= ratio > MOST
                costs = f"{least:.2f} s, {with_spans:.2f} s with spans per million events"
                print(f"{plain.label}: {costs}, x {ratio:.3f}", flush=True)
                came, before = len(collector.spans()) - before, len(collector.spans())
                missed |= not came
                print(f"{came} spans came", flush=True)
    finally:
        source.close()
    return int(missed)


if __name__ == "__main__":
    raise SystemExit(main())
