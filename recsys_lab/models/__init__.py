"""Models for one device, each file one paper's figure. They know nothing of ranks. Their tables can be replaced by sharded ones."""

from recsys_lab.models.concat import Concat
from recsys_lab.models.dcn import DCN
from recsys_lab.models.dlrm import DLRM
from recsys_lab.models.initial import fill_tables, initialise_dense
from recsys_lab.models.sequence import Sequence
from recsys_lab.models.workload import ModelCost, describe

__all__ = ["Concat", "DCN", "DLRM", "ModelCost", "Sequence", "describe", "fill_tables", "initialise_dense"]
