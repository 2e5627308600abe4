"""`circlet serve`: models behind HTTP, on the runtime, without torch.

| module | what it does |
|---|---|
| `app` | puts the others together: `create_app` |
| `served` | a model that is served; it can be swapped while requests are in flight |
| `batching` | one thread computes for all requests, those with equal options together |
| `api`, `annif`, `teaching` | the endpoints: our own, Annif's dialect, feedback and learning |
| `schemas`, `reading` | what requests look like, and how their bodies are read |
| `feedback`, `learning`, `lesson` | what users corrected, and a child process that learns from it |
| `label_search` | finds labels by a part of their names |
| `guard`, `rates`, `limits` | who may ask, how much and how often |
| `monitoring` | counts for Prometheus |
| `static` | the files of the page |
| `server` | uvicorn: sockets, signals, slow clients |

Nothing here imports torch; only the process that learns from feedback does.
"""
