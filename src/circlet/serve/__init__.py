"""The service: a model behind HTTP, with a page, that learns from what its users correct."""
