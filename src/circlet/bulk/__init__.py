"""Tagging more documents than one process should: in blocks, by many workers, and again after a crash.

`TagBatches` is for frameworks that have workers of their own, such as Ray Data and Spark. `tag_files` is what
`circlet predict --engine` runs:

- `plan` finds where files may be cut into blocks, and keeps all blocks of a run in its output folder, so that the
  run can go on after a crash;
- `engines` share blocks among processes, or among the workers of Ray;
- `job` has each block tagged, and its labels written under the block's own name.
"""

from circlet.bulk.batches import TagBatches
from circlet.bulk.job import Totals, tag_files

__all__ = ["TagBatches", "Totals", "tag_files"]
