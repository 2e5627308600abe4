"""A model's folder: which files it has, and how each is read and checked; without torch.

| file | what it holds |
|---|---|
| `config.json` | settings, sizes, calibration, and the digest of the weights; written last |
| `weights.safetensors` | weights of all networks, arrays of the scaling; see `precision` and `deflated` |
| `history.json` | a record per epoch; the last may say what rounding cost a rehearsal, see `rehearsed` |
| `labels.txt` | the names of the labels, if they have names |
| `vectorizer.json`, `vectorizer.safetensors` | the text vectorizer's state, if documents are texts |
| `sample.safetensors` | some rows that were held out and their labels, for `circlet compress`; see `sample` |
| `estimator.json` | what only `CircletClassifier` knows, if it saved the model |
| `checkpoint.safetensors`, `run.json`, `decided.json` | an interrupted run; each network has a checkpoint |

In a copy that `circlet compress` made as small as possible, `labels.txt` and the vectorizer's files are gzipped.
If anything is wrong with a file, a `DataError` names it. Nothing is pickled.
"""
