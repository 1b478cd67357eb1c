"""TorchRec's sharding types, in its order. Our schemes have their names."""

from recsys_lab.schemes.in_host import GRID_SHARD, TABLE_ROW_WISE
from recsys_lab.schemes.replicated import DATA_PARALLEL
from recsys_lab.schemes.row_blocks import ROW_WISE
from recsys_lab.schemes.whole import COLUMN_WISE, TABLE_COLUMN_WISE, TABLE_WISE

SCHEMES = (DATA_PARALLEL, TABLE_WISE, COLUMN_WISE, ROW_WISE, TABLE_ROW_WISE, TABLE_COLUMN_WISE, GRID_SHARD)
