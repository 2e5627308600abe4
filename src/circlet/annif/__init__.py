"""circlet as a backend of Annif, the subject indexing toolkit of the National Library of Finland.

`circlet-annif` is Annif's own command line with the backend `circlet` added; docs/annif.md shows how to use it.
Importing this package needs neither Annif nor torch.
"""

from circlet.annif.command import create_app, main, register

__all__ = ["create_app", "main", "register"]
