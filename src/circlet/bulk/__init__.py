"""Tag more documents than one process should: in blocks, by many workers, and again after a crash.

`TagBatches` is for frameworks that have workers of their own, such as Ray Data and Spark. `tag_files` is behind
`circlet predict --engine`:

- `plan` cuts files into blocks, and stores these in the output folder, so that a run can continue after a crash;
- `engines` share blocks among processes, or among the workers of Ray;
- `job` has each block tagged, and its labels written under the block's own name.
"""

from circlet.bulk.batches import TagBatches
from circlet.bulk.job import Totals, tag_files

__all__ = ["TagBatches", "Totals", "tag_files"]
