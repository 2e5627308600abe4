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
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

from circlet.data.feedback import Judged
from circlet.errors import CircletError
from circlet.folder.contents import explained, read
from circlet.folder.deflated import DEFLATED

__all__ = ["give"]


def give(folder: Path, output: Path, corrections: Sequence[Judged]) -> dict[str, Any]:
    """Teach the model in a folder, and write the taught one to another; what became of the corrections."""
    from circlet.model import Model
    from circlet.model.model import write
    from circlet.model.teaching import teach

    with explained(folder):
        saved = read(folder, whole=True, estimator=True)
        model = Model.restore(folder, saved)
    state, store = saved.estimator, saved.config["store"]
    named = state is None or state["target"] == "indicator" or state["classes"]["values"] is None
    taught = teach(model, corrections, may_grow=named)
    contents = replace(model.contents(), estimator=state)
    write(output, contents, "float32" if store == DEFLATED else store)
    return asdict(taught)


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
        answer = give(Path(asked["folder"]), Path(asked["output"]), corrections)
    except (CircletError, OSError, MemoryError) as error:
        answer = {"error": str(error) or type(error).__name__}
    print(json.dumps(answer), file=answers, flush=True)
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    status = main(sys.stdin, sys.stdout)
    sys.stdout.flush()
    os._exit(status)  # at once: the other thread is still reading
