"""One lesson, in a process of its own: a model and corrections in, a taught model out.

It is the only part of the service that imports torch. `circlet.serve.learning` starts it as

    python -m circlet.serve.lesson

and writes one line of JSON to it: the model's folder, the folder to write, and all feedback. It answers with
one line of JSON: what was learned, or an error. Its input stays open meanwhile; when it ends, the service is gone,
and so is this process.
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
from circlet.model.session import teach_saved


def main(source: IO[str], answers: IO[str], *, alone: bool = True) -> int:
    """Read a lesson, give it and answer; a process that does nothing else ends when its source does."""
    asked = json.loads(source.readline())

    def end_with_service() -> None:
        source.read()
        os._exit(3)

    if alone:
        threading.Thread(target=end_with_service, daemon=True).start()
    try:
        corrections = [Judged(text, tuple(yes), tuple(no)) for text, yes, no in asked["corrections"]]
        answer = asdict(teach_saved(Path(asked["folder"]), Path(asked["output"]), corrections))
    except (CircletError, OSError, MemoryError) as error:
        answer = {"error": str(error) or type(error).__name__}
    print(json.dumps(answer), file=answers, flush=True)
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    status = main(sys.stdin, sys.stdout)
    sys.stdout.flush()
    os._exit(status)  # at once: the other thread is still reading
