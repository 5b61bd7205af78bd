"""A learner that counts its steps. It writes a checkpoint every so many steps and when it is asked to stop, and goes on
from the last one: `python -m tests.standins.learner FILE`."""

import json
import signal
import sys
import time
from pathlib import Path

#: Steps between two checkpoints, and how long one takes.
EVERY, STEP_S = 50, 0.01


def main(file: Path) -> None:
    """Learn until SIGTERM."""
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    step = json.loads(file.read_text())["step"] if file.exists() else 0
    print(json.dumps({"began": step}), flush=True)
    while not stopping:
        time.sleep(STEP_S)
        step += 1
        if not step % EVERY:
            _checkpoint(file, step)
    _checkpoint(file, step)
    print(json.dumps({"stopped": step}), flush=True)


def _checkpoint(file: Path, step: int) -> None:
    new = file.with_suffix(".new")
    new.write_text(json.dumps({"step": step, "time": time.time()}))
    new.replace(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
