"""torch's optimizers on hi/lo split weights, or beside a master: FP32's update to the last bit."""

from __future__ import annotations

import gc
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from recsys_lab.config.options import DenseOptimizer
from recsys_lab.executor.dense_weights import DenseWeights, in_model_format
from recsys_lab.kernels.choice import native_for
from recsys_lab.kernels.stored import MODEL_DTYPE
from recsys_lab.kernels.weights import AdamStep, Vector, adam, adam_step, sgd_step
from recsys_lab.train import stored_optimizer
from recsys_lab.train.optimizer import torch_optimizer
from recsys_lab.train.stored_optimizer import StoredOptimizer
from tests.executor.test_stored import BITS, floats


def options(name: str, lr: float = 0.1, momentum: float = 0.0, decay: float = 0.0) -> DenseOptimizer:
    return DenseOptimizer(name=name, lr=lr, eps=1e-8, weight_decay=decay, momentum=momentum)


def optimizer_of(weights: DenseWeights, given: DenseOptimizer) -> StoredOptimizer:
    return StoredOptimizer(weights, partial(torch_optimizer, options=given))


def stored(format: str, first: dict[str, torch.Tensor]) -> DenseWeights:
    parameters = [(name, torch.nn.Parameter(values.to(MODEL_DTYPE[format]))) for name, values in first.items()]
    return DenseWeights.of(format, parameters, first)


def same(stored_weights: torch.Tensor, reference: torch.Tensor) -> bool:
    """The same bits; of NaNs any."""
    return bool(((stored_weights.view(torch.int32) == reference.view(torch.int32)) | (stored_weights.isnan() & reference.isnan())).all())


numbers = st.floats(0, 2, width=32)


@pytest.mark.parametrize("kernels", [True, False])
@settings(max_examples=60)
@given(st.data(), st.integers(1, 40), numbers, st.sampled_from([0.0, 0.9]), st.sampled_from([0.0, 0.01, 0.5]))
def test_split_sgd_is_fp32_sgd_bit_for_bit(kernels: bool, data: st.DataObject, size: int, lr: float, momentum: float, decay: float) -> None:
    """Whatever weights and gradients: denormals, infinities, NaNs and both zeros too."""
    first = {name: floats(data.draw(st.lists(BITS, min_size=n, max_size=n))) for name, n in (("a", size), ("b", 3))}
    stored_weights = stored("split_bf16", first)
    kept = {name: torch.nn.Parameter(values.clone()) for name, values in first.items()}
    given_options = options("sgd", lr, momentum, decay)
    joined_optimizer, reference = optimizer_of(stored_weights, given_options), torch_optimizer(kept.values(), given_options)
    for _ in range(3):
        for name, parameter in kept.items():
            gradient = floats(data.draw(st.lists(BITS, min_size=parameter.numel(), max_size=parameter.numel()))).to(torch.bfloat16)
            stored_weights.parameters[name].grad, parameter.grad = gradient, gradient.float()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(stored_optimizer, "native_for", lambda weight: kernels and native_for(weight))
            joined_optimizer.step()
        reference.step()
        for name, parameter in kept.items():
            assert same(stored_weights[name].read(), parameter.data), name


def exact_root(of: torch.Tensor) -> torch.Tensor:
    """Rounded correctly. torch's is MKL's on CPUs, whose last bit may be another."""
    return of.double().pow(0.5).float()


def numbers_of(shape: tuple[int, ...]) -> torch.Tensor:
    """Of many magnitudes; some zero, some denormal."""
    return torch.randn(shape) * 10.0 ** torch.randint(-12, 3, shape) * (torch.rand(shape) > 0.1)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("decay", [0.0, 0.01])
@pytest.mark.parametrize("format", ["split_bf16", "bf16_master", "fp32"])
def test_adam_is_torchs_but_for_the_rounding_of_roots(format: str, decay: float, kernels: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """On vectors that torch takes in whole registers: what is left over it rounds otherwise."""
    torch.manual_seed(1)
    first = {"large": numbers_of((256, 160)), "small": numbers_of((64,))}
    stored_weights, given = stored(format, first), options("adam", 0.1, 0.0, decay)
    kept = {key: torch.nn.Parameter(values.clone()) for key, values in first.items()}
    joined_optimizer, reference, plain = (optimizer_of(stored_weights, given), *(torch_optimizer(kept.values(), given) for _ in range(2)))
    monkeypatch.setattr(stored_optimizer, "native_for", lambda weight: kernels and native_for(weight))
    for step in range(4):
        for key, parameter in kept.items():
            gradient = numbers_of(parameter.shape).to(MODEL_DTYPE[format])
            stored_weights.parameters[key].grad, parameter.grad = gradient, gradient.float()
        before = {key: parameter.detach().clone() for key, parameter in kept.items()}
        joined_optimizer.step()
        plain.step()
        by_mkl = {key: parameter.detach().clone() for key, parameter in kept.items()}
        for key, parameter in kept.items():
            parameter.data.copy_(before[key])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "sqrt", exact_root)
            reference.step()
        for key, parameter in kept.items():
            assert torch.equal(stored_weights[key].read(), parameter.data), (key, step)
            assert torch.allclose(parameter.data, by_mkl[key], rtol=1e-5, atol=1e-7), (key, step)
            for what, state in reference.state[parameter].items():
                assert torch.equal(joined_optimizer.state[stored_weights.parameters[key]][what], state), (key, what)


@pytest.mark.parametrize("threads", [2, 3])
def test_adam_moves_weights_alike_in_any_number_of_threads(threads: int) -> None:
    torch.manual_seed(2)
    weight, grad = numbers_of((100_003,)), numbers_of((100_003,))
    moved = []
    before = torch.get_num_threads()
    for count in (1, threads):
        torch.set_num_threads(count)
        parts = [part.clone() for part in (weight, torch.zeros_like(weight), torch.zeros_like(weight))]
        for step in (1, 2):
            adam_step(Vector(parts[0], None, [0]), [grad], *parts[1:], AdamStep(step, 0.1, (0.9, 0.999), 1e-8))
        moved.append(parts)
    torch.set_num_threads(before)
    assert all(torch.equal(one, other) for one, other in zip(*moved))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("sizes", [(70_001, 0, 1, 33, 40_000), (1, 90_000), (17,)])
def test_one_call_moves_all_parameters_and_nothing_between_them(threads: int, sizes: tuple[int, ...]) -> None:
    """Threads share the elements of all gradients, wherever one ends and the next begins."""
    torch.manual_seed(5)
    starts, end = [], 7
    for size in sizes:
        starts.append(end)
        end += size + 5
    before, gradients = numbers_of((end,)), [numbers_of((size,)) for size in sizes]
    how, adam_state = AdamStep(1, 0.1, (0.9, 0.999), 1e-8, 0.01), [torch.rand(end) for _ in range(2)]
    by_sgd, by_adam, velocity = before.clone(), before.clone(), torch.rand(end)
    alone = [part.clone() for part in (before, velocity, before, *adam_state)]  # a parameter at a time, by torch
    for start, gradient in zip(starts, gradients):
        here = slice(start, start + len(gradient))
        parameter = torch.nn.Parameter(alone[0][here].clone())
        parameter.grad = gradient.clone()
        reference = torch.optim.SGD([parameter], lr=0.1, momentum=0.9, weight_decay=0.01)
        reference.state[parameter]["momentum_buffer"] = alone[1][here]
        reference.step()
        alone[0][here] = parameter.data
        adam(alone[2][here], gradient, alone[3][here], alone[4][here], how)
    kept = torch.get_num_threads()
    torch.set_num_threads(threads)
    sgd_step(Vector(by_sgd, None, starts), gradients, lr=0.1, momentum=0.9, weight_decay=0.01, velocity=velocity)
    adam_step(Vector(by_adam, None, starts), gradients, *adam_state, how)
    torch.set_num_threads(kept)
    for actual, exact in zip((by_sgd, velocity, by_adam, *adam_state), alone):
        assert torch.equal(actual, exact)


@pytest.mark.parametrize("name", ["sgd", "adagrad", "adam"])
@pytest.mark.parametrize("format", ["split_bf16", "bf16_master", "fp32"])
def test_every_optimizer_moves_the_joined_weights_as_fp32s(name: str, format: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "adam":
        monkeypatch.setattr(torch.Tensor, "sqrt", exact_root)
    torch.manual_seed(0)
    first = {"weight": torch.randn(33, 70), "bias": torch.randn(7), "scalar": torch.randn(())}
    stored_weights = stored(format, first)
    kept = {key: torch.nn.Parameter(values.clone()) for key, values in first.items()}
    joined_optimizer, reference = (
        optimizer_of(stored_weights, options(name, 0.1, 0.9, 0.01)),
        torch_optimizer(kept.values(), options(name, 0.1, 0.9, 0.01)),
    )
    for step in range(5):
        for optimizer in (joined_optimizer, reference):
            optimizer.param_groups[0]["lr"] = 0.1 / (1 + step)
        for key, parameter in kept.items():
            gradient = torch.randn(parameter.shape).to(MODEL_DTYPE[format])
            stored_weights.parameters[key].grad, parameter.grad = gradient, gradient.float()
        joined_optimizer.step()
        reference.step()
        for key, parameter in kept.items():
            assert torch.equal(stored_weights[key].read(), parameter.data), (key, step)
            for what, state in reference.state[parameter].items():
                assert torch.equal(joined_optimizer.state[stored_weights.parameters[key]][what], state), (key, what)
    model = stored_weights.parameters["weight"]
    rounded = kept["weight"].data.to(model.dtype)
    assert torch.equal(model, rounded) if format != "split_bf16" else (model.float().abs() <= kept["weight"].abs()).all()


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_are_gone_or_zero_as_torchs_own(set_to_none: bool) -> None:
    weights = stored("fp32", {"a": torch.randn(3), "b": torch.randn(2)})
    optimizer = optimizer_of(weights, options("adam"))
    weights.parameters["a"].grad = torch.ones(3)
    optimizer.zero_grad(set_to_none)
    left = weights.parameters["a"].grad
    assert left is None if set_to_none else left is not None and not left.any()
    assert weights.parameters["b"].grad is None


@pytest.mark.parametrize(("format", "bytes_a_weight"), [("split_bf16", 4), ("split_bf16_8", 3), ("bf16_master", 6), ("bf16", 2)])
def test_nothing_is_kept_but_what_is_stored(format: str, bytes_a_weight: int) -> None:
    gc.freeze()  # from here on the collector knows new objects only
    weights = stored(format, {"a": torch.randn(64, 64)})
    optimizer = optimizer_of(weights, options("sgd"))
    for _ in range(2):
        weights.parameters["a"].grad = torch.ones(64, 64, dtype=torch.bfloat16)
        optimizer.step()
    optimizer.zero_grad()
    held = [one.untyped_storage() for one in gc.get_objects() if torch.is_tensor(one)]
    gc.unfreeze()
    assert sum({storage.data_ptr(): storage.nbytes() for storage in held}.values()) == 64 * 64 * bytes_a_weight


def test_eight_low_bits_are_cut_off_at_every_update() -> None:
    """The paper's negative result: what does not reach the 24 bits that are kept is lost."""
    first = {"a": torch.ones(8)}
    eight, sixteen = (stored(format, first) for format in ("split_bf16_8", "split_bf16"))
    for weights in (eight, sixteen):
        optimizer = optimizer_of(weights, options("sgd", lr=1.0))
        for _ in range(64):
            weights.parameters["a"].grad = torch.full((8,), -(2.0**-20), dtype=torch.bfloat16)
            optimizer.step()
    assert torch.equal(eight["a"].read(), torch.ones(8)) and torch.equal(sixteen["a"].read(), torch.full((8,), 1 + 2.0**-14))


def test_a_parameter_without_a_gradient_rests() -> None:
    weights = stored("split_bf16", {"a": torch.randn(5), "b": torch.randn(5)})
    before = weights["b"].read().clone()
    optimizer = optimizer_of(weights, options("adam"))
    weights.parameters["a"].grad = torch.ones(5, dtype=torch.bfloat16)
    optimizer.step()
    assert torch.equal(weights["b"].read(), before)


def test_a_model_keeps_its_names_and_first_values() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ModuleDict({"tables": torch.nn.Linear(2, 2)}))
    was = {name: p.detach().clone() for name, p in model.named_parameters()}
    first = in_model_format(model, "split_bf16", "1.tables")
    assert {name: p.dtype for name, p in model.named_parameters()} == {
        name: torch.float32 if "tables" in name else torch.bfloat16 for name in was
    }
    weights = DenseWeights.of("split_bf16", [(n, p) for n, p in model.named_parameters() if "tables" not in n], first)
    assert all(torch.equal(weights[name].read(), was[name]) for name in first) and set(first) == {"0.weight", "0.bias"}
    assert model[0].weight.untyped_storage().data_ptr() == weights.weights.model.untyped_storage().data_ptr()
