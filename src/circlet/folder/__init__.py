"""A model's folder: which files it has, and how each is read and checked; without torch.

| file | what it holds |
|---|---|
| `config.json` | settings, sizes, calibration, and the digest of the weights; written last |
| `weights.safetensors` | the weights of all networks and the arrays of the scaling, see `precision` |
| `history.json` | a record per epoch |
| `labels.txt` | the names of the labels, if they have names |
| `vectorizer.json`, `vectorizer.safetensors` | the text vectorizer's state, if documents are texts |
| `estimator.json` | what only `CircletClassifier` knows, if it saved the model |
| `checkpoint.safetensors`, `run.json`, `decided.json` | an interrupted run; each network has a checkpoint |

If anything is wrong with a file, a `DataError` names it. Nothing is pickled.
"""
