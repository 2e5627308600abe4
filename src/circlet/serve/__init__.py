"""`circlet serve`: models behind HTTP, on the runtime, without torch.

| module | what it does |
|---|---|
| `app` | puts the others together: `create_app`; the files of the page |
| `guard` | who may ask, how much and how often; counts for Prometheus |
| `api`, `schemas` | the endpoints: our own, and Annif's dialect; what requests and answers look like |
| `served` | a model that is served; it can be swapped while requests are in flight |
| `batching` | one thread computes for all requests, those with equal options together |
| `learning`, `lesson` | what users corrected, and a child process that learns from it |
| `server` | uvicorn: sockets, signals, slow clients |

Nothing here imports torch; only the process that learns from feedback does.
"""
