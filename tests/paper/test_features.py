"""Tables, claims and pictures from made-up numbers, and training on dense files."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from circlet_paper import features
from circlet_paper.cells import Workplace
from circlet_paper.training_cells import Settings, TrainingCell


class TestFeatures:
    @staticmethod
    def score(cell: TrainingCell, metric: str) -> float:
        return {"bow": 50.0, "dense": 52.0, "both": 55.0}[cell.features]

    def test_claims(self, made_up, verdicts):
        assert set(verdicts(features, made_up(features, self.score)).values()) == {"yes"}
        worse = made_up(features, lambda cell, metric: 100 - self.score(cell, metric))
        assert set(verdicts(features, worse).values()) == {"no"}

    def test_without_dense_features_it_says_so(self, tmp_path, made_up):
        planned = features.cells(Settings())
        (tmp_path / "wordnet").mkdir()
        for cell in planned:
            line = cell.missing(Workplace(tmp_path)) if cell.dataset == "wordnet" else ""
            assert (line is None) == (cell.dataset == "wordnet" and cell.features == "bow")
            if line:
                assert "circlet embed" in line
        bow = made_up(features, self.score)
        bow["cells"] = [cell for cell in bow["cells"] if cell["about"]["features"] == "bow"]
        assert all("no dense features" in table.note for table in features.tables(bow))
        assert features.claims(bow) == []

    def test_published_rows_are_included(self, made_up):
        table = features.tables(made_up(features, self.score))[0]
        assert ("CHRR (published)", "XLNet", None, "77.0", None, "50.0", None, "29.8", "37.6") in table.rows

    def test_dense_files_are_trained_on(self, tmp_path):
        random = np.random.default_rng(0)
        folder, dense = tmp_path / "data" / "wordnet", tmp_path / "dense" / "wordnet"
        folder.mkdir(parents=True)
        dense.mkdir(parents=True)
        for part, n in (("trn", 60), ("tst", 20)):
            sp.save_npz(folder / f"X.{part}.npz", sp.random(n, 9, 0.5, "csr", np.float32, random))
            sp.save_npz(folder / f"Y.{part}.npz", sp.csr_matrix(np.eye(5, dtype=np.float32)[np.arange(n) % 5]))
            np.save(dense / f"X.{part}.npy", np.eye(5, dtype=np.float32)[np.arange(n) % 5])
        place = Workplace(tmp_path / "data", "cpu", tmp_path / "dense")
        given = {"dim": 16, "hidden": (16,), "dropout": 0.0, "epochs": 25, "batch_size": 8, "lr": 0.02}
        found = {
            kind: TrainingCell("wordnet", "default", given, features=kind).measure(place, None)
            for kind in ("bow", "dense", "both")
        }
        assert [found[kind]["shapes"]["features"] for kind in found] == [9, 5, 14]
        assert found["dense"]["metrics"]["P@1"] > 95 > found["bow"]["metrics"]["P@1"]
        assert found["both"]["metrics"]["P@1"] > found["bow"]["metrics"]["P@1"]
        assert set(found["dense"]["dense_features"]["sha256"]) == {"trn", "tst"}


def test_page_and_picture(made_up, rendered):
    page = rendered(made_up(features, lambda cell, metric: 30.0 + int(metric.partition("@")[2])))
    assert "31.1 ± 0.1" in page
