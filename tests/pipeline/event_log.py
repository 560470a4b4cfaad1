"""What Spark's event log says of the tasks that a piece of work was made of.

Source: https://spark.apache.org/docs/latest/monitoring.html, the JSON form of listener events.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Task:
    """One task: its stage, when it ended (seconds since 1970) and how long it ran (seconds)."""

    stage: int
    ended: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Spread:
    """How a piece of work parts into tasks.

    ``keeps_busy`` is how many slots the work could use at most, its stages one after the other: the
    seconds of all tasks, by those of the longest task of each stage. One large task that holds the
    others up makes it 1. ``slots_busy`` is the share of the slots' time in which tasks ran.
    """

    stages: int
    tasks: int
    keeps_busy: float
    slots_busy: float


class EventLog:
    """The log of an application that is still running, in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True)

    @property
    def settings(self) -> dict[str, str]:
        """What Spark has to be started with."""
        return {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": self._directory.as_uri(),
        }

    def spread(self, began: float, ended: float, slots: int) -> Spread:
        """Of the tasks that ended in between (seconds since 1970), on so many slots.

        Spark writes a stage's tasks out when it is over; those of a stage that runs may be missing.
        """
        stages: dict[int, list[float]] = defaultdict(list)
        for task in self._tasks():
            if began <= task.ended <= ended:
                stages[task.stage].append(task.seconds)
        total = sum(map(sum, stages.values()))
        longest = sum(map(max, stages.values()))
        return Spread(
            stages=len(stages),
            tasks=sum(map(len, stages.values())),
            keeps_busy=total / longest if longest else 0.0,
            slots_busy=total / slots / (ended - began),
        )

    def _tasks(self) -> Iterator[Task]:
        (file,) = (path for path in self._directory.rglob("*") if path.is_file())
        with file.open() as lines:
            for line in lines:
                if '"SparkListenerTaskEnd"' in line and line.endswith("\n"):
                    yield _task(json.loads(line))


def _task(event: dict[str, Any]) -> Task:
    info = event["Task Info"]
    milliseconds = info["Finish Time"] - info["Launch Time"]
    return Task(event["Stage ID"], info["Finish Time"] / 1000, milliseconds / 1000)
