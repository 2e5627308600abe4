"""circlet compared with omikuji, napkinXC, PECOS, scikit-learn and fastText: accuracy, time, memory and size.

    python benchmarks/peers.py --data DIR --out benchmarks

Every peer has its own virtual environment and a script in `peers/` that trains, saves, loads and predicts in its
own process, one process at a time. All peers get the same data (see `peers_data.py`) and the same number of
threads, and circlet's metrics measure their rankings here. circlet's accuracy is the mean of several seeds; its
time, memory and size are those of the first. Each pair of peer and dataset has a JSON file in `results/peers`; a
pair that is measured is not run again until its file is deleted. A peer that can't be installed, fails or takes
too long is reported, and the others are still run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import peers_page
from calibration import reliability
from peers_data import LARGE, SLOW, SMALL, prepare

from circlet import files
from circlet.data.dataset import Dataset
from circlet.errors import CircletError
from circlet.metrics import evaluate, inverse_propensity
from circlet.provenance import provenance

HERE = Path(__file__).resolve().parent
CONSTRAINTS = HERE.parent / "constraints.txt"
DATASETS = (*LARGE, *SMALL, *SLOW)
#: Number of labels of each document whose probabilities are compared with how often they are right.
JUDGED = 10


@dataclass(frozen=True)
class Peer:
    """A library with one choice of settings.

    Parameters
    ----------
    runner : str
        Name of the script `peers/run_….py` and of the virtual environment.
    variant : str
        Name of the script's settings.
    packages : tuple of str
        Packages that pip installs; none for circlet, which uses this script's environment.
    bare : tuple of str
        Packages that pip installs without their dependencies.
    only : tuple of str
        Datasets that it is for.
    too_long : tuple of str
        Datasets among them that it is left out on because it takes too long.
    """

    runner: str
    variant: str = ""
    packages: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()
    only: tuple[str, ...] = DATASETS
    too_long: tuple[str, ...] = ()


PEERS = {
    "omikuji-parabel": Peer("omikuji", "parabel", ("omikuji", "numpy", "scipy")),
    "omikuji-bonsai": Peer("omikuji", "bonsai", ("omikuji", "numpy", "scipy")),
    "napkinxc": Peer("napkinxc", packages=("napkinxc", "numpy", "scipy")),
    # Its linear models do not need the gigabytes of packages that its transformers need.
    "pecos": Peer("pecos", packages=("numpy<2", "scipy<1.14", "scikit-learn"), bare=("libpecos",)),
    "sklearn": Peer("sklearn", packages=("scikit-learn",), too_long=("eurlex-4k", "wordnet", *SLOW)),
    # It was made for numpy 1, and its predict fails with numpy 2.
    "fasttext": Peer("fasttext", packages=("fasttext-wheel", "numpy<2", "scipy")),
    "circlet-fast": Peer("circlet", "fast"),
    "circlet": Peer("circlet", "default"),
    # After circlet, whose model it compresses.
    "circlet-small": Peer("circlet", "small", only=(*LARGE, *SLOW)),
    "circlet-accurate": Peer("circlet", "accurate", only=LARGE),
    "circlet-members3": Peer("circlet", "members3", only=("eurlex-4k",)),
}


class NotMeasuredError(Exception):
    """Why a peer has no numbers, as text for the page."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--data", type=Path, help="folder with a subfolder for each dataset, searched before circlet's own"
    )
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, metavar="NAME")
    parser.add_argument("--slow", action="store_true", help=f"also {', '.join(SLOW)}, which takes hours")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS), metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("benchmarks"))
    parser.add_argument("--work", type=Path, default=Path(".venv/peers"), help="environments, data and models")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--limit", type=int, default=7200, help="seconds for one peer on one dataset, and one seed"
    )
    parser.add_argument(
        "--seeds", type=int, default=3, choices=range(1, 100), metavar="N", help="of circlet's models"
    )
    options = parser.parse_args()
    cells = options.out / "results" / "peers"
    files.prepare_folder(cells)
    for dataset in options.datasets or [name for name in DATASETS if options.slow or name not in SLOW]:
        wanted = [name for name in options.peers if dataset in PEERS[name].only]
        waiting = [name for name in wanted if not is_measured(cells / f"{dataset}-{name}.json")]
        if waiting:
            run_dataset(dataset, waiting, cells, options)
    peers_page.render(cells, options.out / "peers.md")
    say(f"{options.out / 'peers.md'} written")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def is_measured(path: Path) -> bool:
    return path.is_file() and json.loads(path.read_text(encoding="utf-8"))["status"] == "measured"


def run_dataset(name: str, waiting: list[str], cells: Path, options: argparse.Namespace) -> None:
    work = (options.work / name).resolve()
    try:
        dataset = prepare(name, options.data, work / "data")
    except CircletError as error:
        say(f"{name}: left out; {error}")
        return
    for peer in waiting:
        start = time.perf_counter()
        cell = {"benchmark": "peers", "peer": peer, "dataset": name, "statistics": dataset.statistics().as_dict()}
        try:
            found = measure(PEERS[peer], dataset, work / "data", work / peer, options)
            cell |= {"status": "measured", **found}
            line = f"P@1 {100 * found['metrics']['P@1']:.1f}, trained in {found['measured']['train_s']:.0f} s"
        except NotMeasuredError as error:
            cell |= {"status": "not measured", "reason": str(error)}
            line = str(error)
        seconds = time.perf_counter() - start
        known = provenance()
        # The result should not contain the paths of this machine.
        known["command"] = re.sub(r"(--(?:data|out|work)) \S+", r"\1 DIR", known["command"])
        cell["provenance"] = {**known, "seconds": round(seconds, 1)}
        files.write_json(cells / f"{name}-{peer}.json", cell)
        say(f"{name}, {peer}: {line} ({seconds:.0f} s in all)")


def measure(peer: Peer, dataset: Dataset, data: Path, work: Path, options: argparse.Namespace) -> dict[str, Any]:
    """The costs of the first seed, the metrics of all and their means."""
    assert dataset.test is not None
    if dataset.name in peer.too_long:
        raise NotMeasuredError("left out: takes too long here")
    python = environment(peer, options.work.resolve() / "venvs" / peer.runner)
    shutil.rmtree(work, ignore_errors=True)
    weights, Y = inverse_propensity(dataset.train.Y), dataset.test.Y
    runs: list[dict[str, Any]] = []
    for seed in range(options.seeds if peer.runner == "circlet" else 1):
        folder = work / str(seed)
        run(python, peer, seed, data, folder, options)
        ranked = np.load(folder / "ranked.npy")
        runs.append({"seed": seed, "metrics": evaluate(Y, ranked, weights, metrics=("P", "nDCG", "PSP"))})
        if (folder / "probabilities.npy").exists():
            chances = np.load(folder / "probabilities.npy")
            runs[-1]["reliability"] = reliability(Y, ranked[:, :JUDGED], chances[:, :JUDGED])
    return {
        "measured": json.loads((work / "0" / "measured.json").read_text(encoding="utf-8")),
        "metrics": {name: fmean(each["metrics"][name] for each in runs) for name in runs[0]["metrics"]},
        "runs": runs,
    }


def run(python: Path, peer: Peer, seed: int, data: Path, work: Path, options: argparse.Namespace) -> None:
    work.mkdir(parents=True)
    command = [str(python), str(HERE / "peers" / f"run_{peer.runner}.py"), str(data), str(work)]
    command += ["--variant", peer.variant, "--threads", str(options.threads), "--seed", str(seed)]
    pools = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    with (work / "log.txt").open("w", encoding="utf-8") as log:
        try:
            subprocess.run(
                command,
                check=True,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=options.limit,
                env=os.environ | dict.fromkeys(pools, str(options.threads)),
            )
        except subprocess.TimeoutExpired as error:
            raise NotMeasuredError(f"stopped after {options.limit:,} s") from error
        except subprocess.CalledProcessError as error:
            say(f"see {work / 'log.txt'}")
            raise NotMeasuredError(f"failed: {last_line(work / 'log.txt', error.returncode)}") from error


def environment(peer: Peer, folder: Path) -> Path:
    """The Python of a peer's virtual environment, which is made if necessary."""
    if not peer.packages:
        return Path(sys.executable)
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    stamp, wanted = folder / "installed.txt", " ".join(peer.packages + peer.bare)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    say(f"setting up {folder.name}")
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--prefer-binary"]
    pip += ["--constraint", str(CONSTRAINTS)]
    log = folder / "pip.txt"
    for packages in (peer.packages, ("--no-deps", *peer.bare)):
        if packages == ("--no-deps",):
            continue
        with log.open("w", encoding="utf-8") as stream:
            done = subprocess.run([*pip, *packages], check=False, stdout=stream, stderr=subprocess.STDOUT)
        if done.returncode:
            raise NotMeasuredError(f"can't be installed here: {last_line(log, done.returncode)}")
    stamp.write_text(wanted, encoding="utf-8")
    return python


def last_line(log: Path, status: int) -> str:
    """The last line of a log that reports an error, without this machine's paths and addresses."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    errors = [line for line in lines if re.match(r"(ERROR|[\w.]*(Error|Exception))\b", line)] or lines
    line = next((line for line in reversed(errors) if line), f"exit status {status}")
    return re.sub(r"\w+://\S+|(?<!\w)/[\w.-]+/\S*", "…", line)[:200]


if __name__ == "__main__":
    main()
