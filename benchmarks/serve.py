"""What the service costs: requests over loopback against the bare runtime on the same texts, by number of clients.

    circlet train pydocs --model MODEL
    python benchmarks/serve.py MODEL pydocs --out benchmarks/results

`--annif VENV` names an environment with `annif[omikuji]`: its server, with an omikuji model of the same training
texts, then answers the same requests in turn.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from serve_client import form_requests, load, suggest_requests

CLIENTS = (1, 2, 4, 8, 16, 32, 64)
#: Texts of a request, where several are sent together.
TOGETHER = 32
K = 5
#: Of the bare runtime's documents per second.
GOAL = 0.7
#: More clients and texts than the queue has room for.
OVERLOAD = {"clients": 96, "texts": 64}
PROJECTS = """[annif]
name=Annif
language=en
backend=omikuji
analyzer=snowball(english)
vocab=labels
limit=5
"""
SENTENCES = """
from pathlib import Path
from nltk.tokenize.punkt import PunktTrainer, save_punkt_params

folder = Path("nltk/tokenizers/punkt_tab/english")
folder.mkdir(parents=True)
save_punkt_params(PunktTrainer(Path("train.tsv").read_text(encoding="utf-8")).get_params(), dir=str(folder))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("data")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"))
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=100_000, help="of the part about memory")
    parser.add_argument("--annif", type=Path, help="an environment with annif[omikuji]")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    texts = texts_of(options.data)
    if options.bare:
        print(json.dumps(bare(options.model, texts, options.seconds)))
        return
    from circlet import files
    from circlet.provenance import provenance

    files.prepare_folder(options.out)
    result: dict[str, Any] = {
        "benchmark": "serve",
        "provenance": {
            **provenance(packages=("fastapi", "uvicorn", "httptools", "uvloop")),
            "rounds": options.rounds,
        },
        "settings": {"k": K, "together": TOGETHER, "seconds": options.seconds, "overload": OVERLOAD},
    }
    with circlet_server(options.model) as (port, process, started), annif_server(options) as annif_port:
        result["start_s"] = started
        name = options.model.resolve().name
        result["rounds"] = [one_round(options, port, name, texts, annif_port) for _ in range(options.rounds)]
        result["overload"] = overload(port, name, texts)
        result["memory"] = memory(port, name, texts, process, options.requests)
    files.write_json(options.out / "serve.json", result)
    page = table_of(result).markdown()
    files.write_text(options.out / "serve.md", f"# The service\n\n{page}")
    print(page)


def one_round(
    options: argparse.Namespace, port: int, name: str, texts: list[str], annif_port: int | None
) -> dict[str, Any]:
    """Both sides in turn; the bare runtime has a process of its own, and the machine to itself."""
    words = [
        sys.executable,
        __file__,
        str(options.model),
        options.data,
        "--bare",
        "--seconds",
        str(options.seconds),
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    found: dict[str, Any] = {"bare": json.loads(done.stdout), "clients": {}}
    single = suggest_requests(port, name, [[text] for text in texts], K)
    load(port, single, 8, seconds=0.5)  # warms up
    for clients in CLIENTS:
        found["clients"][str(clients)] = load(port, single, clients, seconds=options.seconds).summary()
        print(clients, found["clients"][str(clients)], flush=True)
    several = suggest_requests(port, name, chunks(texts, TOGETHER), K)
    found["together"] = load(port, several, 4, seconds=options.seconds).summary(TOGETHER)
    if annif_port is not None:
        forms = form_requests(annif_port, "annif", texts, K)
        own = form_requests(port, name, texts, K)
        found["annif"] = {
            str(clients): {
                "annif": load(annif_port, forms, clients, seconds=options.seconds).summary(),
                "circlet": load(port, own, clients, seconds=options.seconds).summary(),
            }
            for clients in (1, 8)
        }
    return found


def bare(model: Path, texts: list[str], seconds: float) -> dict[str, float]:
    """Documents per second of the runtime, in batches as large as the service's, and one by one."""
    import circlet
    from circlet.threads import one_blas_thread

    tagger = circlet.load(model)

    def speed(size: int) -> float:
        parts = chunks(texts, size)
        tagger.suggest(parts[0], k=K)
        started, count = time.perf_counter(), 0
        while time.perf_counter() - started < seconds:
            tagger.suggest(parts[count % len(parts)], k=K)
            count += 1
        return size * count / (time.perf_counter() - started)

    found = {"as it is": speed(64), "one by one": speed(1)}
    with one_blas_thread():  # as the service has it; faster where others need the cores too
        found["one BLAS thread"] = speed(64)
    return {**found, "batches": max(found["as it is"], found["one BLAS thread"])}


def overload(port: int, name: str, texts: list[str]) -> dict[str, Any]:
    """More than the queue has room for; afterwards everybody is answered again."""
    large = suggest_requests(port, name, chunks(texts, OVERLOAD["texts"]), K)
    during = load(port, large, OVERLOAD["clients"], seconds=3).summary(OVERLOAD["texts"])
    after = load(port, suggest_requests(port, name, [[text] for text in texts], K), 8, seconds=1).summary()
    return {"during": during, "after": after}


def memory(port: int, name: str, texts: list[str], process: int, requests: int) -> list[dict[str, float]]:
    """The server's memory while it answers requests."""
    single, found = suggest_requests(port, name, [[text] for text in texts], K), []
    for part in range(11):
        if part:
            load(port, single, 16, count=requests // 10)
        found.append({"requests": part * (requests // 10), "mb": memory_mb(process)})
    return found


@contextmanager
def circlet_server(model: Path) -> Iterator[tuple[int, int, float]]:
    """A running service: its port, its process, and the seconds until it listened."""
    words = [
        sys.executable,
        "-m",
        "circlet",
        "serve",
        str(model),
        "--port",
        "0",
        "--no-learn",
        "--quiet",
        "--rate",
        "0",
    ]
    started = time.perf_counter()
    server = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    line = server.stderr.readline()
    took = time.perf_counter() - started
    if not line.startswith("serving"):
        raise SystemExit(line + server.stderr.read())
    try:
        yield int(line.split()[3].rpartition(":")[2]), server.pid, took
    finally:
        server.terminate()
        server.wait()


@contextmanager
def annif_server(options: argparse.Namespace) -> Iterator[int | None]:
    """Annif's server with an omikuji model of the same training texts; None without `--annif`."""
    if options.annif is None:
        yield None
        return
    from circlet.data import load_dataset

    data = load_dataset(options.data)
    names = data.label_names or []
    with tempfile.TemporaryDirectory() as folder:
        place, uris = Path(folder), [f"http://example.org/{i}" for i in range(len(names))]
        (place / "projects.cfg").write_text(PROJECTS, encoding="utf-8")
        lines = [f"<{uri}>\t{name}" for uri, name in zip(uris, names, strict=True)]
        (place / "labels.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
        documents = zip(data.train.texts or [], data.train.Y, strict=True)
        rows = [
            f"{' '.join(text.split())}\t{' '.join(f'<{uris[label]}>' for label in row.indices)}"
            for text, row in documents
        ]
        (place / "train.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
        annif, port = str(options.annif / "bin" / "annif"), free_port()
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        own["NLTK_DATA"] = str(place / "nltk")
        # Annif's analyzers split texts by NLTK's sentence model, a download; NLTK can also learn one from texts.
        subprocess.run([options.annif / "bin" / "python", "-c", SENTENCES], cwd=place, env=own, check=True)
        for words in (["load-vocab", "-L", "en", "labels", "labels.tsv"], ["train", "annif", "train.tsv"]):
            subprocess.run([annif, *words], cwd=place, env=own, check=True)
        # What Annif's documentation recommends for use: gunicorn with a worker per core.
        words = ["-m", "gunicorn", "-k", "uvicorn.workers.UvicornWorker", "-w", str(os.cpu_count()), "-t", "120"]
        python = str(options.annif / "bin" / "python")
        server = subprocess.Popen(
            [python, *words, "-b", f"127.0.0.1:{port}", "annif:create_app()"],
            cwd=place, env=own, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            wait_for(port)
            yield port
        finally:
            server.terminate()
            server.wait()


def wait_for(port: int) -> None:
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"found nobody on port {port}; wanted Annif")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def texts_of(data: str) -> list[str]:
    from circlet.data import load_dataset

    dataset = load_dataset(data)
    texts = (dataset.test or dataset.train).texts
    if texts is None:
        raise SystemExit(f"{data} has feature rows; wanted texts")
    return texts


def chunks(texts: Sequence[str], size: int) -> list[list[str]]:
    return [list(texts[start : start + size]) for start in range(0, len(texts) - size + 1, size)]


def memory_mb(process: int) -> float:
    for line in Path(f"/proc/{process}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("found no VmRSS; wanted Linux")


def best(rounds: list[dict[str, Any]], *keys: str) -> float:
    """The highest documents per second of all rounds: what others on the machine take is not the service's."""
    values = list[float]()
    for each in rounds:
        value: Any = each
        for key in keys:
            value = value[key]
        values.append(value)
    return max(values)


def table_of(result: dict[str, Any]) -> Any:
    from circlet.report import Table

    rounds = result["rounds"]
    runtime = best(rounds, "bare", "batches")
    rows: list[tuple[Any, ...]] = [("bare runtime, batches of 64", f"{runtime:,.0f}", "1.00", None, None)]
    for clients in map(str, CLIENTS):
        speed = best(rounds, "clients", clients, "documents_per_s")
        fastest = max(
            (each["clients"][clients] for each in rounds), key=lambda each: float(each["documents_per_s"])
        )
        latency = (f"{fastest['p50_ms']:.1f}", f"{fastest['p99_ms']:.1f}")
        name = f"{clients} client{'s' * (clients != '1')}, a text per request"
        rows.append((name, f"{speed:,.0f}", f"{speed / runtime:.2f}", *latency))
    speed = best(rounds, "together", "documents_per_s")
    together = result["settings"]["together"]
    rows.append(
        (f"4 clients, {together} texts per request", f"{speed:,.0f}", f"{speed / runtime:.2f}", None, None)
    )
    for clients in ("1", "8") if "annif" in rounds[0] else ():
        for side in ("circlet", "annif"):
            speed = best(rounds, "annif", clients, side, "documents_per_s")
            rows.append(
                (f"Annif's API, {clients} clients: {side}", f"{speed:,.0f}", f"{speed / runtime:.2f}", None, None)
            )
    during, after = (result["overload"][part]["statuses"] for part in ("during", "after"))
    kept, errors = result["memory"], failures(rounds)
    note = (
        f"The best of {len(rounds)} rounds in which both took turns, on "
        f"{result['provenance']['machine']['cores']} cores that clients and service share; goal: "
        f"{GOAL:.0%} of the bare runtime. Below capacity, {errors} requests failed. Under overload, statuses "
        f"were {during}, and afterwards {after}. Memory: {kept[1]['mb']:.0f} MB "
        f"after {kept[1]['requests']:,} requests, {kept[-1]['mb']:.0f} MB after {kept[-1]['requests']:,}. It "
        f"listens {result['start_s']:.1f} s after its start."
    )
    return Table("Documents per second", ("", "documents/s", "÷ bare", "p50, ms", "p99, ms"), rows, note)


def failures(rounds: list[dict[str, Any]]) -> int:
    """Requests below capacity that were not answered with 200."""
    counts = [each["clients"][clients]["statuses"] for each in rounds for clients in each["clients"]]
    return sum(count for statuses in counts for status, count in statuses.items() if status != "200")


if __name__ == "__main__":
    main()
