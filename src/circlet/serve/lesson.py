"""One lesson, in a separate process: read a model and corrections, write a taught model.

It is the only part of the service that imports torch. `circlet.serve.feedback` starts it as

    python -m circlet.serve.lesson

and sends one line of JSON: the model's folder, the output folder, and all feedback. The process answers with one
line of JSON: the result, or an error. The input stays open meanwhile; if it ends, the service has ended, and this
process exits.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import IO

from circlet.data.feedback import Judged
from circlet.errors import CircletError
from circlet.model.session import update_saved


def main(source: IO[str], answers: IO[str], *, alone: bool = True) -> int:
    """Read a lesson, carry it out and answer; if `alone`, exit the process when its source ends."""
    asked = json.loads(source.readline())

    def end_with_service() -> None:
        source.read()
        os._exit(3)

    if alone:
        threading.Thread(target=end_with_service, daemon=True).start()
    try:
        corrections = [Judged(text, tuple(yes), tuple(no)) for text, yes, no in asked["corrections"]]
        answer = asdict(update_saved(Path(asked["folder"]), Path(asked["output"]), corrections))
    except (CircletError, OSError, MemoryError) as error:
        answer = {"error": str(error) or type(error).__name__}
    print(json.dumps(answer), file=answers, flush=True)
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    status = main(sys.stdin, sys.stdout)
    sys.stdout.flush()
    os._exit(status)  # at once: the other thread is still reading
