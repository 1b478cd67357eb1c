"""Any table of clicks, CSV or Parquet: a label, numbers and categories by the names of their columns."""

from recsys_lab.data.table.open import open_table

__all__ = ["open_table"]
