"""Learning from feedback in the background: versions of a model, and the child process that trains each.

Beside a model's folder `tagger` there is `tagger.taught`:

| | |
|---|---|
| `versions.json` | the served version, earlier ones, and the number of feedback records they contain |
| `1`, `2`, … | the versions that learned from feedback, each a whole model; version 0 is the model itself |
| `.lock` | held by the process that learns |

Every version is made from version 0 and all feedback that is not undone. So an undo is exact, and a process that
is killed at any time loses nothing: the log has the feedback, and the next process learns the records that
`versions.json` does not count yet. That file is replaced atomically, after the new version is complete.

Only the child process imports torch. It is started as

    python -m circlet.serve.feedback

and receives one line of JSON: the model's folder, the output folder, and all feedback. It answers with one line of
JSON: the result, or an error. Its input stays open meanwhile; if the input ends, the service has ended, and the
child exits.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError, model_validator

from circlet import files
from circlet.data.feedback import FeedbackLog, TextFeedback
from circlet.errors import CircletError, DataError, OutputError, ParameterError
from circlet.runtime.tagger import Tagger, load
from circlet.settings.network import why_no_feedback
from circlet.storage.layout import LOCK, REMEMBERED, read_config

__all__ = ["KEPT", "Learner", "versions_folder", "why_not"]

log = logging.getLogger(__name__)

#: Number of versions with feedback that are kept, to roll back to.
KEPT = 5


def versions_folder(folder: Path | str) -> Path:
    """Return the folder of the versions of a model that learned from feedback."""
    whole = Path(folder).resolve()
    return whole.with_name(f"{whole.name}.taught")


def why_not(folder: Path | str) -> str | None:
    """Return why a model cannot learn from feedback here, as a sentence; None if it can."""
    place = Path(folder).resolve().parent
    if not os.access(place, os.W_OK):
        return f"found {place}, which can't be written; wanted a place for versions that learn"
    config = read_config(Path(folder))
    if find_spec("torch") is None:
        return "learning needs torch, which is not installed: pip install 'circlet[train]'"
    network, kept = config["network"], REMEMBERED in config["files"]
    return why_no_feedback(network["head"], network["loss"], texts=bool(config["texts"]), remembered=kept)


class Version(BaseModel, frozen=True):
    """A version, and the number of feedback entries that it has learned."""

    version: str
    taught: int


class Versions(BaseModel, frozen=True):
    """The content of `versions.json`."""

    original: str  # digest of version 0's configuration; another model has other versions
    records: int = 0  # number of records of the log that are learned, or that a rollback skips
    last: int = 0  # the latest version number
    kept: tuple[Version, ...] = (Version(version="0", taught=0),)  # to the served one

    @model_validator(mode="after")
    def _in_order(self) -> Versions:
        numbers = [int(each.version) for each in self.kept]
        if numbers != sorted(set(numbers)) or numbers[:1] != [0] or numbers[-1] > self.last:
            raise ValueError(f"the versions {numbers}")
        return self

    @property
    def served(self) -> Version:
        """The version that is served."""
        return self.kept[-1]

    def with_next(self, entries: int, records: int) -> Versions:
        """Add a version; if there are too many, drop the oldest one other than version 0."""
        new = Version(version=str(self.last + 1), taught=entries)
        kept = (self.kept[0], *self.kept[1:][-(KEPT - 1) :], new)
        return Versions(original=self.original, records=records, last=self.last + 1, kept=kept)


class Learner:
    """Makes versions of one model in the background, which learn from feedback.

    Parameters
    ----------
    folder : Path or str
        The model as it was trained; it is never changed.
    feedback : FeedbackLog
        Feedback of users; all of it that is not undone is learned.
    on_swap : callable
        Called with tagger and name of each version to serve: from the constructor if a version with feedback was
        served last time, and later from another thread.
    pause : float
        Seconds to wait for more feedback before learning.

    Raises
    ------
    ParameterError
        If the model can't learn from feedback; see `why_not`.
    OutputError
        If another process makes its versions.
    """

    def __init__(
        self,
        folder: Path | str,
        feedback: FeedbackLog,
        *,
        on_swap: Callable[[Tagger, str], None],
        pause: float = 0.2,
    ) -> None:
        self.folder, self.feedback, self.on_swap, self.pause = Path(folder), feedback, on_swap, pause
        if reason := why_not(folder):
            raise ParameterError(f"{folder}: {reason}")
        self.place = versions_folder(folder)
        files.prepare_folder(self.place)
        self._lock = os.open(self.place / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            files.lock(self._lock)
        except OSError as error:
            os.close(self._lock)
            raise OutputError(f"cannot learn in {self.place}: another process does; stop it first") from error
        #: The first protects the state below and is held only briefly; the second serializes swaps.
        self._changed, self._swapping = threading.Condition(), threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._wanted, self._closed, self._learning, self._failed = True, False, False, False
        #: Why learning failed, or what the served version could not learn.
        self._message: str | None = None
        try:
            self._versions = self._restored()
        except BaseException:
            os.close(self._lock)
            raise
        self._thread = threading.Thread(target=self._run, name=f"learning {self.place.name}", daemon=True)
        self._thread.start()

    def notify(self) -> None:
        """Announce new feedback or an undo; the learner will soon learn all feedback."""
        with self._changed:
            self._wanted = True
            self._changed.notify_all()

    def state(self) -> dict[str, Any]:
        """Return what the learner is doing, and which version is served."""
        records = len(self.feedback)
        with self._changed:
            waiting = max(0, records - self._versions.records)
            # Announced feedback counts as learning, even before the learner begins.
            busy = self._learning or (self._wanted and waiting > 0)
            return {
                "state": "learning" if busy else "failed" if self._failed else "idle",
                **self._versions.served.model_dump(),
                "waiting": waiting,
                "can_roll_back": len(self._versions.kept) > 1,
                "message": self._message,
            }

    def roll_back(self) -> str:
        """Serve the previous version again, and return its name.

        The feedback stays in the log. With the next feedback, all of it that is not undone is learned again.
        """
        with self._swapping:
            before = self._versions
            if len(before.kept) < 2:
                raise ParameterError("found no earlier version of the model to roll back to")
            versions = before.model_copy(update={"kept": before.kept[:-1], "records": len(self.feedback)})
            tagger = load(self._path(versions.served.version))
            with self._changed:
                self._commit(versions)
                self._wanted = False
                self._stop_child()
            self.on_swap(tagger, versions.served.version)
        shutil.rmtree(self._path(before.served.version), ignore_errors=True)
        return versions.served.version

    def close(self) -> None:
        """Stop learning; the next learner will learn the remaining feedback."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._stop_child()
            self._changed.notify_all()
        self._thread.join()
        os.close(self._lock)

    def _path(self, version: str) -> Path:
        return self.folder if version == "0" else self.place / version

    def _commit(self, versions: Versions, message: str | None = None) -> None:
        files.write_json(self.place / "versions.json", versions.model_dump())
        self._versions, self._failed, self._message = versions, False, message

    def _restored(self) -> Versions:
        """Restore the versions of an earlier process, and serve the last one again, or learn it anew."""
        files.remove_leftovers(self.place)
        path = self.place / "versions.json"
        anew = versions = Versions(original=str(read_config(self.folder).get("sha256")))
        if path.exists():
            try:
                found = Versions.model_validate(files.read_json(path))
            except ValidationError as error:
                raise DataError(
                    f"{path}: found no readable list of versions ({error.errors()[0]['msg']}); remove "
                    f"{path.parent} to learn anew from the feedback"
                ) from error
            anew = versions.model_copy(update={"last": found.last})
            versions = found if found.original == versions.original else anew
        kept = {each.version for each in versions.kept}
        for each in self.place.iterdir():
            if each.name.isdigit() and each.name not in kept:
                shutil.rmtree(each, ignore_errors=True)
        served = versions.served.version
        if served != "0":
            try:
                self.on_swap(load(self._path(served)), served)
            except CircletError as error:
                log.warning("%s is learned anew: %s", self._path(served), error)
                return anew
        return versions

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._closed)
                self._changed.wait_for(lambda: self._closed, timeout=self.pause)
                if self._closed:
                    return
                self._wanted, self._learning = False, True
            try:
                self._learn()
            except Exception as error:  # the old model is still served; the state shows the error
                log.warning("learning failed: %s", error)
                with self._changed:
                    self._failed, self._message = True, str(error) or type(error).__name__
            finally:
                with self._changed:
                    self._learning = False

    def _learn(self) -> None:
        records, entries = self.feedback.snapshot()
        with self._changed:
            before = self._versions
        if records == before.records:
            return
        # A temporary name, which contains the id of this process.
        scratch = files.temporary_beside(self.place / str(before.last + 1))
        shutil.rmtree(scratch, ignore_errors=True)
        try:
            answer = self._train(scratch, [[each.text, each.accepted, each.rejected] for each in entries])
            if answer is None:
                return
            load(scratch)  # never swap in a version that cannot be loaded
            message = None
            if left_out := answer["left_out"]:
                message = (
                    f"the model has no room for {len(left_out)} new labels ({', '.join(left_out[:3])}, …): "
                    "`circlet train --feedback` makes some"
                )
            with self._swapping:
                if self._versions is not before or self._closed:
                    return  # rolled back meanwhile
                versions = before.with_next(len(entries), records)
                scratch.rename(self._path(versions.served.version))
                tagger = load(self._path(versions.served.version))
                with self._changed:
                    self._commit(versions, message)
                self.on_swap(tagger, versions.served.version)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        for each in {*before.kept} - {*versions.kept}:
            shutil.rmtree(self._path(each.version), ignore_errors=True)

    def _train(self, output: Path, corrections: list[Any]) -> dict[str, Any] | None:
        """Make a version in a child process; return its answer, or None if it was stopped."""
        asked = {"folder": str(self.folder.resolve()), "output": str(output), "corrections": corrections}
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors:
            with self._changed:
                if self._closed:
                    return None
                child = self._child = subprocess.Popen(
                    [sys.executable, "-m", "circlet.serve.feedback"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    encoding="utf-8",
                )
            assert child.stdin is not None
            assert child.stdout is not None
            line = ""
            # The child's input stays open until the answer, because the child exits when its input ends.
            with suppress(BrokenPipeError), child:
                child.stdin.write(json.dumps(asked) + "\n")
                child.stdin.flush()
                line = child.stdout.readline()
            with self._changed:
                stopped, self._child = self._child is None, None
            if stopped:
                return None
            errors.seek(0)
            said = errors.read().splitlines() or ["no message"]
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            raise OutputError(
                f"the process that learns ended with status {child.returncode}: {said[-1].strip()}"
            ) from None
        if "error" in answer:
            raise OutputError(answer["error"])
        return answer

    def _stop_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()


def answer_to(request: str) -> dict[str, Any]:
    """Make a version as a line of JSON asks; return the result, or an error."""
    try:
        from circlet.model.session import update_saved

        asked = json.loads(request)
        corrections = [TextFeedback(text, tuple(yes), tuple(no)) for text, yes, no in asked["corrections"]]
        return asdict(update_saved(Path(asked["folder"]), Path(asked["output"]), corrections))
    except Exception as error:  # the service shows it
        return {"error": str(error) or type(error).__name__}


def main() -> None:
    """Run the child process."""
    request = sys.stdin.readline()

    def end_with_service() -> None:
        sys.stdin.read()
        os._exit(3)

    threading.Thread(target=end_with_service, daemon=True).start()
    print(json.dumps(answer_to(request)), flush=True)  # noqa: T201 — its answer
    os._exit(0)  # at once: the other thread is still reading


if __name__ == "__main__":
    main()
