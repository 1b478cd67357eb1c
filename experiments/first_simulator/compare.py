"""How far is the first simulator from what was published? Nothing is fitted; the errors are the result.

python experiments/first_simulator/compare.py [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import OmegaConf

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from recsys_lab.cluster import Cluster  # noqa: E402
from recsys_lab.models.workload import describe  # noqa: E402
from recsys_lab.plan import Step, Workload  # noqa: E402
from recsys_lab.plan.lower import lower  # noqa: E402
from recsys_lab.planners import row_wise  # noqa: E402
from recsys_lab.planners import torchrec as torchrec_planner  # noqa: E402
from recsys_lab.precision import Precision  # noqa: E402
from recsys_lab.simulate import Profile, simulate  # noqa: E402
from recsys_lab.simulate.collectives import collective_ms  # noqa: E402
from recsys_lab.tables import AccessStatistics, Table, power_law_access  # noqa: E402

PLANNERS = {"torchrec": torchrec_planner.plan, "torchrec_row_wise": row_wise.plan}
MIXED = Precision("mixed", compute="fp16", forward_comm="fp16", backward_comm="fp16", dense_comm="fp16")


def of_conf(group: str, choice: str) -> Any:
    return instantiate(OmegaConf.load(ROOT / "conf" / group / f"{choice}.yaml"), _convert_="object")


def row(what: str, published_ms: float, simulated_ms: float) -> dict:
    return {"what": what, "published_ms": published_ms, "simulated_ms": simulated_ms, "error": simulated_ms / published_ms - 1}


def flexshard(published: Any) -> list[dict]:
    """Collectives alone: table 6 gives their bytes."""
    cluster: Cluster = of_conf("cluster", published.cluster)
    row_bytes = published.dim * 4

    def ms(kind: str, size: float, groups: tuple[tuple[int, ...], ...]) -> float:
        return collective_ms(Step("s", kind, "forward", (size,), groups), cluster)

    world, peers = (cluster.ranks,), tuple(cluster.peers(local) for local in range(cluster.ranks_per_host))
    found = []
    for given in published.rows:
        name = f"{given.model} {given.sharding}"
        found.append(row(f"{name}, all-to-all both ways", given.all_to_all_ms, 2 * ms("all_to_all", given.all_to_all_elements * 4, world)))
        if "dp_rows" in given:
            found.append(row(f"{name}, all-reduce of all ranks", given.all_reduce_ms, ms("all_reduce", given.dp_rows * row_bytes, world)))
        if "flex_rows" in given:
            size = given.flex_rows * row_bytes / cluster.ranks_per_host
            found.append(row(f"{name}, all-reduce of peers", given.cross_all_reduce_ms, ms("all_reduce", size, peers)))
    return found


def mlperf_dcnv2(published: Any) -> list[dict]:
    """Whole iterations of DLRM-DCNv2 with TorchRec's software profile, in FP32 and in mixed precision, under two sharders."""
    config = OmegaConf.create({"model": OmegaConf.load(ROOT / "conf" / "model" / f"{published.model}.yaml")}).model
    tables = tuple(Table(f"cat_{i}", rows, config.embedding_dim, (f"cat_{i}",)) for i, rows in enumerate(config.rows))
    access = AccessStatistics({t.name: power_law_access(t.name, t.rows, float(n), 1.05) for t, n in zip(tables, config.lengths)})
    cost = describe(instantiate(config, tables, config.dense_features, torch.device("meta"), _convert_="all"), config.dense_features)
    profile: Profile = of_conf("profile", "torchrec")
    found = []
    for given in published.rows:
        cluster = of_conf("cluster", published.cluster).reshaped(given.hosts, given.ranks_per_host)
        workload = Workload(
            batch_size=given.global_batch // cluster.world_size,
            dense_parameters=cost.dense_parameters,
            forward_flops_per_sample=cost.forward_flops_per_sample,
            backward_flops_per_sample=cost.backward_flops_per_sample,
            activation_bytes_per_sample=cost.activation_bytes_per_sample,
            sparse_optimizer="row_wise_adagrad",
            dense_optimizer="adagrad",
        )
        for sharder, planner in PLANNERS.items():
            for precision in (Precision("fp32"), MIXED):
                plan = planner(tables, access, cluster, precision, workload)
                simulated, _ = simulate(lower(plan, access, precision, workload), cluster, profile, plan, workload)
                what = f"{given.system}, {sharder}, {precision.name}"
                found.append(row(what, given.iteration_ms, simulated.iteration_ms) | {"phases_ms": simulated.phases_ms})
    return found


def main() -> None:
    line = argparse.ArgumentParser(description=__doc__)
    line.add_argument("--json", action="store_true", help="print one JSON object")
    published = OmegaConf.load(Path(__file__).with_name("published.yaml"))
    found = {"flexshard": flexshard(published.flexshard), "mlperf_dcnv2": mlperf_dcnv2(published.mlperf_dcnv2)}
    if line.parse_args().json:
        print(json.dumps(found))
        return
    for study, rows in found.items():
        print(study)
        for one in rows:
            phases = "  ".join(f"{name} {ms:.2f}" for name, ms in one.get("phases_ms", {}).items())
            times = f"published {one['published_ms']:8.3f}  simulated {one['simulated_ms']:8.3f}  {one['error']:+7.1%}"
            print(f"  {one['what']:58} {times}  {phases}".rstrip())


if __name__ == "__main__":
    main()
