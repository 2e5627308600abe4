"""A model's folder: its files, and how each is read and checked; without torch.

| file | content |
|---|---|
| `config.json` | settings, sizes, calibration, and the size and digest of every other file; written last |
| `weights.safetensors` | weights of all networks, arrays of the scaling; see `tensors` and `packed_weights` |
| `history.json` | a record per epoch; the last may have the loss by rounding, measured in a calibration run |
| `labels.txt` | the names of the labels, if they have names |
| `vectorizer.json`, `vectorizer.safetensors` | the vectorizer, if the first layer takes features of texts |
| `encoder.json`, `encoder.safetensors` | settings of an encoder of texts, and what it has learned from them |
| `sample.safetensors` | some held-out rows and their labels, for `circlet compress`; see `kept_rows` |
| `index.safetensors` | predictions for the training documents, if requested; see `kept_rows` |
| `remembered.safetensors` | some training rows and their labels, for training on feedback; see `kept_rows` |
| `uris.txt` | the URIs of labels that have both names and URIs |
| `estimator.json` | the state that only `CircletClassifier` has, if it saved the model |
| `MODEL_CARD.md` | a description for people, made from the files above and never read by circlet; see `card` |
| `checkpoint.safetensors`, `run.json`, `decided.json` | an interrupted run; each network has a checkpoint |
| `.lock` | the process that is writing into the folder, as long as there is one; see `publish` |

The files of a model that replaces another have new names, such as `labels-2.txt`; only the card keeps its name.
Replacing `config.json`, which lists the files, switches to the new model; then the old files are removed. So
readers find one of the two models, never a mixture; see `publish`. `layout` describes when digests are checked. In
copies by `circlet compress` with deflated weights, `labels.txt` and the files of vectorizer and encoder are
gzipped. A damaged file raises a `DataError` that names it. Nothing is pickled.
"""
