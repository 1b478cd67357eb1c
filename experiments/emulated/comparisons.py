"""What is compared on the emulated network: of each comparison its lines, as words of run.py, the first of them the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

#: FlexShard's RM-2 a thousand times smaller, with as many look-ups a row as the paper has.
RM2 = (
    "model=flexshard_rm2",
    "model.rows=[30000]",
    "model.law.rows=30000",
    "model.law.knees=[128.736,507.072,2525.952]",
    "model.law.shift=0.0143163578984",
    "model.lengths=[100]",
    "model.max_length=100",
    "model.embedding_dim=64",
    "model.feed_forward=64",
    "model.over_layers=[64,1]",
    "data=random",
    "data.rows_train=200000",
    "data.rows_validation=256",
    "data.batch_size=1280",
)
#: A DLRM whose exchange is most of its iteration, without its batch.
TABLES = (
    "model=dlrm",
    "model.embedding_dim=64",
    "model.bottom_layers=[64,64]",
    "model.over_layers=[64,1]",
    "data=random",
    "data.rows_per_table=[" + ",".join(["20000"] * 24) + "]",
    "data.rows_train=1000000",
    "data.rows_validation=256",
)
DLRM = (*TABLES, "data.batch_size=8192")
WHOLE = (*DLRM, "sharder=torchrec", "sharder.planner.sharding_types=[table_wise]")
#: Two models under six sharders each, which `pairs.py` compares two by two; and the samples of a step.
MODELS = {
    "dlrm": (*TABLES, "model.tower.dim=16"),
    "dcn": tuple(word.replace("model=dlrm", "model=dcn") for word in TABLES),
}
BATCH = 2048
ROWS = 64  # columns of a row of DLRM
#: As these lines were measured: the baseline sends the next batch's ids ahead, towers do not.
WAITS = "sharder.executor.pipeline=false"
TRANSFER, THROUGHPUT = "transfer", "throughput"
#: What cluster=emulated_4x2 is.
HOSTS, RANKS_PER_HOST, LINK_GB_S = 4, 2, 0.05


@dataclass(frozen=True)
class Comparison:
    """`figure`: transfer, the time that the exchange of embeddings is under way, or throughput, examples a second. More is better for the
    second, less for the first; a ratio above 1 is a gain in both. `hosts`: of the lines that have another number of them than all.
    """

    about: str
    figure: str
    lines: dict[str, tuple[str, ...]]
    hosts: Mapping[str, int] = field(default_factory=dict)

    @property
    def baseline(self) -> str:
        return next(iter(self.lines))

    def hosts_of(self, line: str) -> int:
        return self.hosts.get(line, HOSTS)


def _dmt(compression: int) -> tuple[str, ...]:
    return (*DLRM, "precision=fp16_comms", "sharder=dmt", WAITS, f"model.tower.dim={ROWS // compression}")


def _scaled(hosts: int) -> tuple[str, ...]:
    """As many samples a rank whatever their number."""
    return (*TABLES, "sharder=torchrec", f"cluster.hosts={hosts}", f"data.batch_size={2048 * hosts}")


COMPARISONS = {
    "flexshard": Comparison(
        "FlexShard's two and three tiers against row-wise sharding, RM-2 a thousand times smaller",
        TRANSFER,
        {name: (*RM2, f"sharder={name}") for name in ("torchrec_row_wise", "flexshard_2tier", "flexshard_3tier")},
    ),
    "dmt": Comparison(
        "SPTT, and DMT with towers that compress 1, 4 and 16 times, against the strong TorchRec baseline; all with FP16 communication",
        THROUGHPUT,
        {
            "torchrec_strong": (*DLRM, "precision=fp16_comms", "sharder=torchrec_strong"),
            "dmt_sptt": (*DLRM, "precision=fp16_comms", "sharder=dmt_sptt", WAITS),
            "dmt_1": _dmt(1),
            "dmt_4": _dmt(4),
            "dmt_16": _dmt(16),
        },
    ),
    "fp16": Comparison(
        "16-bit communication against FP32, TorchRec's planner",
        TRANSFER,
        {"fp32": (*DLRM, "sharder=torchrec"), "fp16_comms": (*DLRM, "sharder=torchrec", "precision=fp16_comms")},
    ),
    "scatter": Comparison(
        "Three ways to exchange whole tables' rows, each blocking: a scatter a table, a scatter a rank, one all-to-all",
        TRANSFER,
        {
            name: (*WHOLE, "sharder.executor.overlap=false", f"sharder.executor.exchange={name}")
            for name in ("scatter_list", "fused_scatter", "all_to_all")
        },
    ),
    "overlap": Comparison(
        "Blocking collectives against overlapped ones, the same plan",
        THROUGHPUT,
        {name: (*WHOLE, f"sharder.executor.overlap={said}") for name, said in (("blocking", "false"), ("overlapped", "true"))},
    ),
    "scaling": Comparison(
        "One to four hosts of two ranks, 1,024 samples a rank",
        THROUGHPUT,
        {f"hosts_{hosts}": _scaled(hosts) for hosts in (1, 2, 3, 4)},
        {f"hosts_{hosts}": hosts for hosts in (1, 2, 3, 4)},
    ),
}
