"""A model's folder: which files it has, and how each is read and checked; without torch.

| file | what it holds |
|---|---|
| `config.json` | settings, sizes, calibration, and the size and digest of every other file; written last |
| `weights.safetensors` | weights of all networks, arrays of the scaling; see `tensors` and `deflated` |
| `history.json` | a record per epoch; the last may say what rounding cost a calibration run; see `history` |
| `labels.txt` | the names of the labels, if they have names |
| `vectorizer.json`, `vectorizer.safetensors` | of texts, their vectorizer; a tokenizer has only JSON |
| `sample.safetensors` | some rows that were held out and their labels, for `circlet compress`; see `sample` |
| `index.safetensors` | predictions for the documents it learned from, if asked for; see `index` |
| `remembered.safetensors` | some rows that were trained on and their labels, for teaching; see `sample` |
| `estimator.json` | what only `CircletClassifier` knows, if it saved the model |
| `MODEL_CARD.md` | what the model is, for people; made from the files above, and never read; see `card` |
| `checkpoint.safetensors`, `run.json`, `decided.json` | an interrupted run; each network has a checkpoint |
| `.lock` | who is writing here, as long as somebody is; see `lock` |

A model that replaces another has files with other names, such as `labels-2.txt`; only the card keeps its own. Then
`config.json` is replaced, which names them, and the former files are removed. So a reader finds one model or the
other, and never a mixture; see `publish`. `layout` says which digests are checked when. In a copy that `circlet
compress` made as small as possible, `labels.txt` and the vectorizer's files are gzipped. If anything is wrong with
a file, a `DataError` names it. Nothing is pickled.
"""
