"""Embedding tables and how often their rows are read. Pure data."""

from recsys_lab.tables.access import AccessStatistics, TableAccess, measured_access, power_law_access
from recsys_lab.tables.spec import Table

__all__ = ["AccessStatistics", "Table", "TableAccess", "measured_access", "power_law_access"]
