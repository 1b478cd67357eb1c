"""Figure 6: the gradients' reduce-scatter and all-gather beside the backward products of an MLP, on 8 sockets of one machine. Simulated."""

from __future__ import annotations

from experiments.cpu_dlrm.sockets import profile
from experiments.cpu_dlrm.tables import published
from recsys_lab.config.choices import built
from recsys_lab.simulate.collectives import Shape, group_ms
from recsys_lab.studies.study import Line, Study

QUESTION = "products of the backward pass and the communication beside them"
CLUSTER, SOCKETS = "skx8", 8
FP32_BYTES = 4
NOTES = (
    "Products: five of 1,008 x 1,024 x 1,024 by data and five by weights, on 24 of 28 cores at figure 5's 72 % of peak.",
    "Communication: a reduce-scatter and an all-gather round a ring, each over all five gradients. The paper moves them by non-temporal "
    "stores over all links and does not say which of its two times is which; both are held against the same simulated one.",
    "Simulated on cluster=skx8 with profile=cpu, which was not fitted to these four figures.",
)


def run(name: str) -> Study:
    given, software, cluster = published()[name], profile(), built("cluster", CLUSTER)
    weights = given["layers"] * given["width"] ** 2
    flops = 2 * given["samples"] * weights
    products = flops / (cluster.device.peak_tflops["fp32"] * 1e12 * software.fp32_mfu * (1 - software.cores_for_links)) * 1e3
    beside = group_ms("all_gather", Shape(SOCKETS, 1, SOCKETS), FP32_BYTES * weights / SOCKETS, cluster)
    lines = (
        Line("products by data", products, given["by_data_ms"], "ms", "simulated"),
        Line("products by weights", products, given["by_weights_ms"], "ms", "simulated"),
        *(
            Line(f"communication beside {what}", beside, ms, "ms", "simulated")
            for what, ms in zip(("the one", "the other"), given["beside_ms"])
        ),
    )
    statements = (("communication is hidden behind the products", beside < products),)
    return Study(name, QUESTION, lines, statements, NOTES)
