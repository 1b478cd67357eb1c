"""Listening events as Yambda has them: from its Parquet files, or drawn by a law. Histories as MLPerf's DLRMv4 builds them."""

from recsys_lab.data.yambda.open import open_yambda, open_yambda_law

__all__ = ["open_yambda", "open_yambda_law"]
