"""`circlet embed`: raw texts in, dense feature files out."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from circlet.cli import options
from circlet.cli.console import err, track


@options.reads_data()
def embed(
    data: Annotated[str, typer.Argument(metavar="DATA", help="A dataset's name, or a file or folder with texts.")],
    model_path: Annotated[Path, typer.Option("--sentence-model", help="Folder of a sentence-transformers model.")],
    out_folder: Annotated[Path, typer.Option("--output", help="Folder for X.trn.npy, X.tst.npy and embed.json.")],
    name: Annotated[
        str | None, typer.Option(help="The model's name in embed.json.", show_default="the name of its folder")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Texts per step.")] = 64,
    read: options.Given = None,
    device: options.Device = "auto",
    threads: options.Threads = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what embed.json holds.")] = False,
) -> None:
    """Turn a dataset's raw texts into dense features with a pre-trained model; nothing is downloaded.

    If it is interrupted, the same command continues with the part that is not finished.

    """
    # Set before anything imports the hub's client, which reads them only once.
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
    options.use_torch("embedding texts", threads, extra="embed")
    from circlet.data import load_dataset
    from circlet.devices import resolve_device
    from circlet.features.embed import check_model_folder, embed_dataset

    check_model_folder(model_path)
    place = str(resolve_device(device))
    dataset = load_dataset(data, **(read or {}))
    err.print(f"{dataset.name}: {dataset.format}", highlight=False, soft_wrap=True)
    record = embed_dataset(
        dataset, model_path, out_folder, name=name, batch_size=batch_size, device=place, progress=track
    )
    if as_json:
        print(json.dumps(record, ensure_ascii=False, indent=1))
        return
    for part, entry in record["parts"].items():
        err.print(
            f"{out_folder / f'X.{part}.npy'}: {entry['rows']:,} texts, {entry['dims']} features, "
            f"{entry['texts_per_second']:,} texts/s",
            highlight=False,
            soft_wrap=True,
        )
