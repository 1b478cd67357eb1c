"""Embedding tables and how often their rows are read. Pure data."""

from recsys_lab.tables.access import AccessStatistics, TableAccess, compress, measured_access, power_law_access
from recsys_lab.tables.law import LawOptions, RankLaw, zipf_mandelbrot
from recsys_lab.tables.spec import Table

__all__ = [
    "LawOptions",
    "AccessStatistics",
    "RankLaw",
    "Table",
    "TableAccess",
    "compress",
    "measured_access",
    "power_law_access",
    "zipf_mandelbrot",
]
