"""Learning in the background: versions of a model, each taught with all feedback so far.

Beside a model's folder `tagger` there is `tagger.taught`:

| | |
|---|---|
| `versions.json` | the served version, earlier ones, and the number of feedback records it has learned |
| `1`, `2`, … | the taught versions, each a whole model; version 0 is the model itself |
| `.lock` | held by the process that teaches |

Every lesson starts from version 0 and takes all feedback that is not undone. So an undo is exact, and a process
that is killed at any time loses nothing: the log has the feedback, and the next process learns the records that
`versions.json` does not count yet. That file is replaced atomically, after the new version is complete.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from circlet import files
from circlet.data.feedback import FeedbackLog
from circlet.errors import CircletError, DataError, OutputError, ParameterError
from circlet.runtime.tagger import Tagger, load
from circlet.settings.network import why_no_feedback
from circlet.storage.layout import LOCK, REMEMBERED, read_config

__all__ = ["KEPT", "Learner", "taught_folder", "why_not"]

log = logging.getLogger(__name__)

#: Taught versions that are kept, to roll back to.
KEPT = 5
VERSIONS = "versions.json"


def taught_folder(folder: Path | str) -> Path:
    """Return the folder of a model's taught versions."""
    whole = Path(folder).resolve()
    return whole.with_name(f"{whole.name}.taught")


def why_not(folder: Path | str) -> str | None:
    """Return why a model cannot be taught here, as a sentence; None if it can."""
    place = Path(folder).resolve().parent
    if not os.access(place, os.W_OK):
        return f"{place} can't be written; wanted a place for what is learned"
    config = read_config(Path(folder))
    if find_spec("torch") is None:
        return "learning needs torch, which is not installed: pip install 'circlet[train]'"
    network, kept = config["network"], REMEMBERED in config["files"]
    return why_no_feedback(network["head"], network["loss"], texts=bool(config["texts"]), remembered=kept)


@dataclass(frozen=True)
class Version:
    """A version, and the number of entries that it has learned."""

    version: str
    taught: int


@dataclass(frozen=True)
class Versions:
    """The content of `versions.json`.

    Parameters
    ----------
    original : str
        Digest of version 0's configuration; another model has other versions.
    records : int
        Number of records of the log that need no further lesson: learned, or skipped by a rollback.
    last : int
        The latest version number.
    kept : tuple of Version
        From the oldest to the served version.
    """

    original: str
    records: int = 0
    last: int = 0
    kept: tuple[Version, ...] = (Version("0", 0),)

    @property
    def served(self) -> Version:
        """The version that is served."""
        return self.kept[-1]

    def taught(self, entries: int, records: int) -> Versions:
        """Add a version; if there are too many, drop the oldest one other than version 0."""
        new = Version(str(self.last + 1), entries)
        rest = [each for each in self.kept if each.version != "0"]
        kept = (Version("0", 0), *rest[-(KEPT - 1) :], new) if KEPT > 1 else (Version("0", 0), new)
        return replace(self, records=records, last=self.last + 1, kept=kept)

    @classmethod
    def read(cls, path: Path) -> Versions:
        """Read a file."""
        found = files.read_json(path)
        try:
            kept = tuple(Version(str(each["version"]), int(each["taught"])) for each in found["kept"])
            numbers = [int(each.version) for each in kept]
            if numbers != sorted(set(numbers)) or numbers[0] != 0 or numbers[-1] > int(found["last"]):
                raise ValueError(f"the versions {numbers}")
            return cls(str(found["original"]), int(found["records"]), int(found["last"]), kept)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise DataError(
                f"{path}: found no readable list of versions ({error!r}); remove {path.parent} to learn anew from "
                "the feedback"
            ) from error

    def write(self, path: Path) -> None:
        """Write a file atomically."""
        files.write_json(path, asdict(self))


class Learner:
    """Teaches one model in the background, and keeps its versions.

    Parameters
    ----------
    folder : Path or str
        The model as it was trained; it is never changed.
    feedback : FeedbackLog
        Feedback of users; all of it that is not undone is learned.
    on_swap : callable
        Called with tagger and name of each version to serve: from the constructor if a taught version was served
        last time, and later from another thread.
    pause : float
        Seconds between feedback and a lesson, to collect more feedback.

    Raises
    ------
    ParameterError
        If the model can't be taught; see `why_not`.
    OutputError
        If another process teaches it.
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
        self.place = taught_folder(folder)
        files.prepare_folder(self.place)
        self._lock = os.open(self.place / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            files.lock(self._lock)
        except OSError as error:
            os.close(self._lock)
            raise OutputError(f"cannot teach in {self.place}: another process does; stop it first") from error
        #: The first protects the state below and is held only briefly; the second serializes swaps.
        self._changed, self._swapping = threading.Condition(), threading.Lock()
        self._child: subprocess.Popen[str] | None = None
        self._wanted, self._closed, self._learning = True, False, False
        self._failed: str | None = None
        self._note: str | None = None
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
            # Announced feedback counts as learning, even before the lesson begins.
            busy = self._learning or (self._wanted and waiting > 0)
            state = "learning" if busy else "idle" if self._failed is None else "failed"
            served = self._versions.served
            return {
                "state": state,
                "version": served.version,
                "taught": served.taught,
                "waiting": waiting,
                "can_roll_back": len(self._versions.kept) > 1,
                "message": self._note if self._failed is None else self._failed,
            }

    def roll_back(self) -> str:
        """Serve the previous version again, and return its name.

        The feedback stays in the log. With the next feedback, all of it that is not undone is learned again.
        """
        with self._swapping:
            before = self._versions
            if len(before.kept) < 2:
                raise ParameterError("found no earlier version of the model to roll back to")
            versions = replace(before, kept=before.kept[:-1], records=len(self.feedback))
            tagger = load(self._path(versions.served.version))
            with self._changed:
                self._commit(versions)
                self._wanted, self._failed, self._note = False, None, None
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

    def _commit(self, versions: Versions) -> None:
        versions.write(self.place / VERSIONS)
        self._versions = versions

    def _restored(self) -> Versions:
        """Restore the versions of an earlier process, and serve the last one again, or learn it anew."""
        files.remove_leftovers(self.place)
        original = str(read_config(self.folder).get("sha256"))
        path, versions = self.place / VERSIONS, Versions(original)
        if path.exists():
            found = Versions.read(path)
            versions = found if found.original == original else replace(versions, last=found.last)
        kept = {each.version for each in versions.kept}
        for each in self.place.iterdir():
            if each.name.isdigit() and each.name not in kept:
                shutil.rmtree(each, ignore_errors=True)
        if versions.served.version != "0":
            try:
                self.on_swap(load(self._path(versions.served.version)), versions.served.version)
            except CircletError as error:
                log.warning("%s is learned anew: %s", self._path(versions.served.version), error)
                versions = Versions(original, last=versions.last)
        return versions

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._closed)
                if not self._closed:
                    self._changed.wait_for(lambda: self._closed, timeout=self.pause)
                if self._closed:
                    return
                self._wanted, self._learning = False, True
            try:
                self._learn()
            except Exception as error:  # the old model is still served; the state shows the error
                log.warning("learning failed: %s", error)
                with self._changed:
                    self._failed = str(error) or type(error).__name__
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
            answer = self._lesson(scratch, [[each.text, each.accepted, each.rejected] for each in entries])
            if answer is None:
                return
            load(scratch)  # never swap in a version that cannot be loaded
            with self._swapping:
                if self._versions is not before or self._closed:
                    return  # rolled back meanwhile
                versions = before.taught(len(entries), records)
                scratch.rename(self._path(versions.served.version))
                tagger = load(self._path(versions.served.version))
                with self._changed:
                    self._commit(versions)
                    self._failed, self._note = None, None
                    if left_out := answer["left_out"]:
                        self._note = (
                            f"the model has no room for {len(left_out)} new labels "
                            f"({', '.join(left_out[:3])}, …): `circlet train --feedback` makes some"
                        )
                self.on_swap(tagger, versions.served.version)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        for each in {each.version for each in before.kept} - {each.version for each in versions.kept}:
            shutil.rmtree(self._path(each), ignore_errors=True)

    def _lesson(self, output: Path, corrections: list[Any]) -> dict[str, Any] | None:
        """Teach in a child process; return its answer, or None if it was stopped."""
        asked = {"folder": str(self.folder.resolve()), "output": str(output), "corrections": corrections}
        with self._changed:
            if self._closed:
                return None
            child = self._child = subprocess.Popen(
                [sys.executable, "-m", "circlet.serve.lesson"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
            )
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        errors: list[str] = []
        reader = threading.Thread(target=lambda: errors.extend(child.stderr or ()), daemon=True)
        reader.start()
        try:
            # The child's input stays open until the answer, because the child exits when its input ends.
            with suppress(BrokenPipeError):
                child.stdin.write(json.dumps(asked) + "\n")
                child.stdin.flush()
            line = child.stdout.readline()
            with suppress(BrokenPipeError):
                child.stdin.close()
            status = child.wait()
            reader.join()
        finally:
            with self._changed:
                stopped, self._child = self._child is None, None
            child.stdout.close()
            child.stderr.close()
        if stopped:
            return None
        try:
            answer: dict[str, Any] = json.loads(line)
        except ValueError:
            last = errors[-1].strip() if errors else "no message"
            raise OutputError(f"the process that learns ended with status {status}: {last}") from None
        if "error" in answer:
            raise OutputError(answer["error"])
        return answer

    def _stop_child(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()
