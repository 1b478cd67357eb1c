"""What one step costs, by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recsys_lab.plan.steps import DENSE, Step
from recsys_lab.plan.workload import DenseLayer
from recsys_lab.simulate.costs import collective_step_cost, compute_step_ms, of_profile
from tests.plan.plans import workload
from tests.simulate.clusters import cluster, profile


@pytest.mark.parametrize(("ranks", "tflops"), [(1, 50.0), (2, 37.5)])
def test_a_rank_alone_keeps_the_cores_that_would_drive_its_links(ranks: int, tflops: float) -> None:
    assert of_profile(cluster(1, ranks), profile(cores_for_links=0.25)).device.peak_tflops == {"fp32": tflops}
    assert of_profile(cluster(ranks, 1), profile(cores_for_links=0.25)).device.peak_tflops == {"fp32": tflops}


def test_a_framework_reaches_its_share_of_every_bandwidth_of_both_links() -> None:
    bare = cluster(2, 2)
    given = replace(bare, cross_host=replace(bare.cross_host, ring_gb_s=8.0, in_network_gb_s=4.0, line_gb_s=12.0))
    found = of_profile(given, profile(link_efficiency=0.5))
    assert (found.intra_host.bandwidth_gb_s, found.intra_host.ring_gb_s, found.intra_host.in_network_gb_s) == (50.0, None, None)
    assert (found.cross_host.bandwidth_gb_s, found.cross_host.ring_gb_s, found.cross_host.in_network_gb_s) == (5.0, 4.0, 2.0)
    assert (found.cross_host.line_gb_s, found.cross_host.latency_us) == (12.0, 10.0)  # of the link itself, and of a message


def test_what_is_packed_is_copied_before_and_after() -> None:
    """8 MB are read and written, twice, at 0.8 of 1000 GB/s. What is converted is written to its buffer as it is."""
    step = Step("s", "all_to_all", "forward", (8e6,), ((0, 1),))
    for sent, more_ms in (("", 0.04), ("fp32", 0.04), ("bf16", 0.0)):
        (packed,), (bare,) = (
            collective_step_cost([replace(step, number_format=sent)], cluster(1, 2), profile(copies_exchanged=copies))
            for copies in (True, False)
        )
        assert packed.ms - bare.ms == pytest.approx(more_ms) and packed.wire_ms == bare.wire_ms


@pytest.mark.parametrize(("sent", "conversion_ms"), [("fp32", 0.0), ("bf16", 0.06), ("fp8", 0.1)])
def test_what_travels_is_converted_before_and_after(sent: str, conversion_ms: float) -> None:
    """8 MB of BF16 are 16 MB of FP32: 24 MB read and written, twice, over 0.8 of 1000 GB/s; of FP8 32 + 8."""
    step = Step("s", "all_to_all", "forward", (2e6,), ((0, 1),), received_of_rank=(8e6,), number_format=sent)
    plain = replace(step, number_format="")
    (converted,), (bare,) = (collective_step_cost([s], cluster(1, 2), profile()) for s in (step, plain))
    assert converted.ms - bare.ms == pytest.approx(conversion_ms)
    assert (converted.wire_ms, converted.spare_ms) == (bare.wire_ms, bare.spare_ms)


def test_pieces_of_one_exchange_are_converted_together() -> None:
    """The busiest rank has 2 + 6 MB of BF16: 24 MB of them and of FP32, twice."""
    pieces = [Step(f"s{i}", "scatter", "forward", (0.0, size), ((0, 1),), number_format="bf16") for i, size in enumerate((2e6, 6e6))]
    (converted,), (bare,) = (
        collective_step_cost(given, cluster(1, 2), profile()) for given in (pieces, [replace(p, number_format="") for p in pieces])
    )
    assert converted.ms - bare.ms == pytest.approx(0.06)


@pytest.mark.parametrize(
    ("peaks", "taken", "tflops"),
    [
        ({"fp32": 50.0}, "tf32", 25.0),  # a device without TF32: half of its FP32 peak
        ({"fp32": 50.0}, "fp32", 25.0),
        ({"fp32": 50.0, "tf32": 100.0}, "tf32", 40.0),
        ({"fp32": 50.0, "tf32": 100.0}, "fp32", 25.0),
        ({"fp32": 50.0, "tf32": 60.0}, "fp32", 24.0),  # no faster than in TF32
    ],
)
def test_products_on_fp32_cores_reach_a_share_of_their_own(peaks: dict[str, float], taken: str, tflops: float) -> None:
    on = cluster(1, 2)
    on = replace(on, device=replace(on.device, peak_tflops=peaks))
    software = replace(profile(fp32_mfu=0.5, dense_mfu=0.4), peak_of_format={"fp32": taken})
    step = Step("d", "dense", "forward", (0.0,), flops=1e12, number_format="fp32")
    assert compute_step_ms(step, on, software, None)[0] == pytest.approx(1e3 / tflops)


@pytest.mark.parametrize(
    ("phase", "compute", "flops", "expected_ms"),
    [
        # 1000 x 500 x 400 products are 0.4 GFLOP at 0.4 of 50 TFLOP/s; 0.6 more; activations of 4 MB at 800 GB/s
        ("forward", "fp32", 1e9, 0.02 + 0.03 + 4e6 / 800e6),
        ("forward", "bf16", 1e9, 0.02 + 0.03 + 2e6 / 800e6),
        # two products of each layer, and activations twice
        ("backward", "fp32", 2e9, 0.04 + 0.06 + 8e6 / 800e6),
        ("backward", "bf16", 2e9, 0.04 + 0.06 + 4e6 / 800e6),
        # a step with less work than its layers has no other
        ("forward", "fp32", 0.0, 0.02 + 4e6 / 800e6),
    ],
)
def test_a_dense_step_is_its_layers_its_other_work_and_its_activations(phase: str, compute: str, flops: float, expected_ms: float) -> None:
    on, software = cluster(1, 2), replace(profile(), peak_of_format={"fp32": "fp32", "bf16": "fp32"})
    work = workload(1000, layers=(DenseLayer(1.0, 500, 400),))
    step = Step("dense", "dense", phase, (1.0,), flops=flops, number_format=compute, role=DENSE)
    assert compute_step_ms(step, on, software, work) == pytest.approx([expected_ms])


@pytest.mark.parametrize(("compute", "least", "expected_ms"), [("fp32", 2e8 + 1, 0.04), ("fp32", 2e8, 0.02), ("bf16", 2e8 + 1, 0.02)])
def test_small_products_have_a_share_of_the_peak_of_their_own(compute: str, least: float, expected_ms: float) -> None:
    """1000 x 500 x 400 are 0.2 G multiply-adds, 0.4 GFLOP: at 0.4 of 50 TFLOP/s, or at 0.2 where they are too few. FP32 only."""
    software = replace(profile(small_mfu=0.2, small_multiply_adds=least), peak_of_format={"fp32": "fp32", "bf16": "fp32"})
    work = workload(1000, layers=(DenseLayer(1.0, 500, 400),), activation_bytes_per_sample=0.0)
    step = Step("dense", "dense", "forward", (1.0,), flops=4e8, number_format=compute, role=DENSE)
    assert compute_step_ms(step, cluster(1, 2), software, work) == pytest.approx([expected_ms])


@pytest.mark.parametrize(("compute", "expected_ms"), [("fp32", 4.0), ("bf16", 2.0)])
def test_a_layer_with_many_weights_and_few_samples_takes_as_long_as_its_bytes(compute: str, expected_ms: float) -> None:
    """20,000 x 40,000 weights for one sample: 3.2 GB of FP32 over 800 GB/s; 1.6 GFLOP would take 0.08 ms."""
    software = replace(profile(), peak_of_format={"fp32": "fp32", "bf16": "fp32"})
    work = workload(1, layers=(DenseLayer(1.0, 20_000, 40_000),), activation_bytes_per_sample=0.0)
    step = Step("dense", "dense", "forward", (1.0,), number_format=compute, role=DENSE)
    assert compute_step_ms(step, cluster(1, 2), software, work) == pytest.approx([expected_ms], rel=1e-4)


def test_a_layer_that_each_sample_passes_eight_times_moves_eight_times_the_values() -> None:
    """64 weights, and 1,000 samples of 8 rows with 8 values in and 8 out: 4 x (64 + 8,000 x 16) bytes over 800 GB/s."""
    software = replace(profile(), peak_of_format={"fp32": "fp32", "bf16": "fp32"})
    work = workload(1000, layers=(DenseLayer(8.0, 8, 8),), activation_bytes_per_sample=0.0)
    step = Step("dense", "dense", "forward", (1.0,), flops=2.0 * 8000 * 64, number_format="fp32", role=DENSE)
    assert compute_step_ms(step, cluster(1, 2), software, work) == pytest.approx([4 * (64 + 8000 * 16) / 800e6])
