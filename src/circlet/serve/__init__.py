"""`circlet serve`: models behind HTTP, on the runtime, without torch.

| module | what it does |
|---|---|
| `app` | combines the other modules: `create_app`; the files of the page |
| `guard` | access, limits and rates; metrics for Prometheus |
| `api`, `schemas` | the endpoints: our own, and Annif's dialect; the schemas of requests and responses |
| `served` | a model that is served; it can be swapped while requests are in flight |
| `batching` | one thread computes for all requests, those with equal options together |
| `feedback` | versions of a model that learn from feedback, and the child process that trains them |
| `server` | uvicorn: sockets, signals, slow clients |

Nothing here imports torch; only the process that learns from feedback does.
"""
