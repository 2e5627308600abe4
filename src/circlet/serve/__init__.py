"""`circlet serve`: models behind HTTP, on the runtime, without torch.

| module | what it does |
|---|---|
| `app` | combines the other modules: `create_app`; the files of the page |
| `guard` | access, limits and rates; metrics for Prometheus |
| `api`, `schemas` | the endpoints: our own, and Annif's dialect; requests and responses |
| `served` | a served model, and the swap of its version while requests are in flight |
| `batching` | one thread computes for all requests, in batches |
| `feedback` | versions of a model that learn from feedback, and the child process that trains them |
| `server` | uvicorn: sockets, signals, slow clients |

Nothing here imports torch; only the process that learns from feedback does.
"""
