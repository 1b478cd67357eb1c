"""Rows of MLPerf results as systems: hardware from what the submitter says, by data sheets, the same for every row.

`mlperf_iterations.tsv` holds 102 public runs, v0.7 to v5.1, with medians over logs. Other rows of the same columns can be given to
`python -m recsys_lab validate --rows FILE`.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from recsys_lab.base.files import read_text
from recsys_lab.base.ranges import Positive
from recsys_lab.base.schema import checked
from recsys_lab.cluster import Cluster, Device, Link
from recsys_lab.config.command_line import CONF
from recsys_lab.errors import UserError

ROWS = Path(__file__).with_name("mlperf_iterations.tsv")
COLUMNS = (
    "round", "submitter", "system", "benchmark", "nodes", "accelerators_per_node", "accelerator", "interconnect", "network", "global_batch",
    "ms_median",
)  # fmt: skip
MODELS = {"dlrm": "dlrm_mlperf", "dlrm_dcnv2": "dcn_mlperf"}
#: Pattern of an accelerator's name; its files in conf/cluster/device and conf/cluster/link; its generation's network. The first that
#: matches counts. The network is for submitters who name none that we know.
ACCELERATORS = (
    (r"GB300", "gb300", "nvlink5", "xdr"),
    (r"GB200", "gb200", "nvlink5", "ndr"),
    (r"GH200", "gh200", "nvlink4", "ndr"),
    (r"B300", "b300", "nvlink5", "xdr"),
    (r"B200", "b200", "nvlink5", "ndr"),
    (r"H200.*NVL\b", "h200", "pcie5", "ndr"),
    (r"H200", "h200", "nvlink4", "ndr"),
    (r"H[18]00.*NVL\b", "h100_nvl", "pcie5", "ndr"),
    (r"H[18]00.*PCIe", "h100_pcie", "pcie5", "ndr"),
    (r"H[18]00", "h100", "nvlink4", "ndr"),
    (r"H20\b", "h20", "nvlink4", "ndr"),
    (r"L40", "l40s", "pcie4", "roce200"),
    (r"A40", "a40", "pcie4_host", "roce200"),
    (r"A30", "a30", "pcie4", "roce200"),
    (r"A100.*PCIe.*40|A100-40.*PCIe", "a100_pcie_40", "pcie4", "hdr"),
    (r"A100.*PCIe", "a100_pcie", "pcie4", "hdr"),
    (r"A[18]00.*80", "a100_80", "nvlink3", "hdr"),
    (r"A[18]00", "a100_40", "nvlink3", "hdr"),
    (r"V100.*PCIe", "v100", "pcie4", "roce100"),
    (r"V100", "v100", "nvlink2", "roce100"),
    (r"RTX.*6000.*Ada", "rtx6000_ada", "pcie4", "roce200"),
    (r"\bL4\b", "l4", "pcie4", "roce200"),
    (r"\bA10\b", "a10", "pcie4", "roce200"),
    (r"MI300X", "mi300x", "xgmi3", "roce400"),
)
#: Words of a network, the first that match.
NETWORKS = (
    (r"XDR|ConnectX-8", "xdr"),
    (r"NDR ?200", "hdr"),
    (r"NDR", "ndr"),
    (r"(RoCE|Ethernet|GbE).*400 ?G|400 ?G\S* *(RoCE|Ethernet|GbE|b?E\b)", "roce400"),
    (r"ConnectX-7", "ndr"),
    (r"HDR|Infiniband.*200 ?G|200 ?G\S* *(Infiniband|IB\b)", "hdr"),
    (r"200 ?Gb", "roce200"),
    (r"100 ?Gb", "roce100"),
)
#: A node of these is a tray; trays of a rack are joined by NVLink, up to so many GPUs.
RACKS = {"gb200": 72, "gb300": 72}
#: Standard deviation of the logarithm of what a network that nobody names gives: nine of ten within half and twice the usual one.
UNNAMED = 0.42
#: Sockets of a CPU node, its device, its link within and across.
CPU_NODE = (2, "spr_8480", "upi_spr", "eth100_cpu")


@dataclass(frozen=True)
class Row:
    """One run: where, of what, and ms of an iteration."""

    round: str
    submitter: str
    system: str
    benchmark: str
    nodes: int
    accelerators: int
    accelerator: str
    interconnect: str
    network: str
    batch: int
    ms: float

    @property
    def what(self) -> str:
        return f"{self.round} {self.submitter} {self.system}, {self.benchmark}"

    @property
    def software(self) -> str:
        """A file of conf/profile."""
        if not self.accelerators:
            return "cpu"
        return "nvidia_pytorch" if "pytorch" in self.system else "hugectr"

    @property
    def hybrid(self) -> bool:
        """HugeCTR's hybrid embedding, of one-hot models, came with v1.0."""
        return self.benchmark == "dlrm" and self.software == "hugectr" and self.round >= "v1.0"

    @property
    def model(self) -> str:
        return MODELS[self.benchmark]


def rows(path: Path = ROWS) -> list[Row]:
    """Raises UserError, with its line, where a column is missing, or a cell is no figure of a run."""
    allowed = f"tab-separated {', '.join(COLUMNS)}"
    try:
        lines = list(csv.DictReader(io.StringIO(read_text(path, "name a table of runs"), newline=""), delimiter="\t"))
    except csv.Error as error:
        raise UserError("no table of runs", where=path, given=error, allowed=allowed) from None
    if not lines or any(name not in lines[0] for name in COLUMNS):
        given = ", ".join(name for name in (lines[0] if lines else ()) if name) or "no run"
        raise UserError("no table of runs", where=path, given=given[:200], allowed=allowed)
    return [_row(fields, f"{path} line {number}") for number, fields in enumerate(lines, 2)]


def _row(fields: dict[str, Any], where: str) -> Row:
    texts = [(fields[name] or "").strip() for name in COLUMNS]
    nodes, accelerators, batch = (_whole(texts[at], f"{where}, {COLUMNS[at]}", least) for at, least in ((4, 1), (5, 0), (9, 1)))
    if texts[3] not in MODELS:
        raise UserError("no such benchmark", where=f"{where}, benchmark", given=texts[3] or "nothing", allowed=", ".join(MODELS))
    try:
        ms = float(texts[10])
    except ValueError:
        raise UserError("not a number", where=f"{where}, ms_median", given=texts[10] or "nothing") from None
    checked(ms, Positive, f"{where}, ms_median")
    if accelerators:
        _words_of(texts[6], f"{where}, accelerator")
    return Row(*texts[:4], nodes, accelerators, *texts[6:9], batch, ms)


def _whole(text: str, where: str, least: int) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < least:
        raise UserError("not a whole number", where=where, given=text or "nothing", allowed=f"{least} or more")
    return int(text)


def _words_of(accelerator: str, where: str) -> tuple[str, str, str, str]:
    """Of ACCELERATORS. Raises UserError for one that no data sheet here has."""
    found = next((given for given in ACCELERATORS if re.search(given[0], accelerator, re.IGNORECASE)), None)
    if found is None:
        raise UserError("no data sheet", where=where, given=accelerator or "nothing", allowed="one of conf/cluster/device")
    return found


def cluster_of(row: Row) -> Cluster:
    """The system of a row: a rank a GPU or a socket. Raises UserError for an accelerator that no data sheet here has."""
    if not row.accelerators:
        ranks, device, near, far = CPU_NODE
        return _cluster(row.nodes, ranks, device, near, far)
    _, device, near, usual = _words_of(row.accelerator, f"{row.what}, accelerator")
    named = next((link for words, link in NETWORKS if re.search(words, row.network, re.IGNORECASE)), None)
    hosts = _racks(row.nodes, RACKS[device] // row.accelerators) if device in RACKS else row.nodes
    cluster = _cluster(hosts, row.nodes * row.accelerators // hosts, device, near, named or usual)
    return cluster if named or hosts == 1 else replace(cluster, cross_host=replace(cluster.cross_host, spread=UNNAMED))


def _racks(trays: int, of_rack: int) -> int:
    """The fewest racks that hold so many trays, as many in each."""
    return next(racks for racks in range(-(-trays // max(of_rack, 1)), trays + 1) if trays % racks == 0)


@cache
def _cluster(hosts: int, ranks: int, device: str, near: str, far: str) -> Cluster:
    return Cluster(f"{device}_{hosts}x{ranks}", hosts, ranks, Device(**part("device", device)), link(near), link(far))


def link(name: str) -> Link:
    """A file of conf/cluster/link."""
    return Link(**part("link", name))


def part(kind: str, name: str) -> dict[str, Any]:
    """A file of conf/cluster/`kind`."""
    found: Any = OmegaConf.to_container(OmegaConf.load(CONF / "cluster" / kind / f"{name}.yaml"))
    return dict(found)
