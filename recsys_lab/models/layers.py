"""The parts that models share. Shapes: B samples, F features, D embedding dimension, N width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torchrec.modules.embedding_configs import PoolingType
from torchrec.modules.embedding_modules import EmbeddingBagCollection, EmbeddingCollection
from torchrec.sparse.jagged_tensor import KeyedTensor

from recsys_lab.errors import UserError
from recsys_lab.kernels import available, dense
from recsys_lab.models.linear import MLP, Linear, matmul
from recsys_lab.models.table_configs import READ_TYPE, StoredBagConfig, StoredRowConfig, tables_of
from recsys_lab.tables import Table

_POOLING = {"sum": PoolingType.SUM, "mean": PoolingType.MEAN}


def embedding_bags(tables: Sequence[Table], device: torch.device | None) -> EmbeddingBagCollection:
    """TorchRec's collection of pooled tables.

    Args:
        tables: pooled by sum or mean.
        device: where its weights are; "meta": nowhere.

    Returns:
        The collection, whose weights nobody has filled.

    Raises:
        UserError: a sequence feature, which these models cannot read; a name that no module of PyTorch's can have.
    """
    reserved = nn.ModuleDict()
    for table in tables:
        if "." in table.name or hasattr(reserved, table.name):
            where = f"table {table.name}"
            raise UserError(
                "PyTorch cannot have a part of this name", where=where, given=table.name, remedy=f"rename it, as t_{table.name}"
            )
        if table.pooling not in _POOLING:
            raise UserError(
                "this model pools its features",
                where=f"table {table.name}",
                given=f"pooling {table.pooling}",
                allowed="sum, mean",
                remedy="data=interactions has data.pooling",
            )
    return tables_of(
        EmbeddingBagCollection,
        [
            StoredBagConfig(
                name=table.name,
                num_embeddings=table.rows,
                embedding_dim=table.dim,
                feature_names=list(table.features),
                pooling=_POOLING[table.pooling],
                data_type=READ_TYPE[table.dtype],
                stored=table.dtype,
            )
            for table in tables
        ],
        device,
    )


def embedding_rows(tables: Sequence[Table], device: torch.device | None) -> EmbeddingCollection:
    """TorchRec's collection of tables that do not pool.

    Args:
        tables: of sequences.
        device: where its weights are; "meta": nowhere.

    Returns:
        The collection, whose weights nobody has filled.

    Raises:
        UserError: a pooled feature, which a sequence model cannot read.
    """
    for table in tables:
        if table.pooling != "none":
            raise UserError("this model reads sequences", where=f"table {table.name}", given=f"pooling {table.pooling}", allowed="none")
    return tables_of(
        EmbeddingCollection,
        [
            StoredRowConfig(
                name=table.name,
                num_embeddings=table.rows,
                embedding_dim=table.dim,
                feature_names=list(table.features),
                data_type=READ_TYPE[table.dtype],
                stored=table.dtype,
            )
            for table in tables
        ],
        device,
    )


def feature_names(tables: Sequence[Table]) -> list[str]:
    """All features, table by table: the order in which a model takes their embeddings."""
    return [feature for table in tables for feature in table.features]


def by_feature(looked_up: KeyedTensor | Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """What the tables gave, [B, D] by feature. Waits for it where sharded tables still exchange rows."""
    return looked_up if isinstance(looked_up, Mapping) else looked_up.to_dict()


def mlp(in_size: int, layers: Sequence[int], device: torch.device | None, *, dropout: float = 0.0, linear_end: bool = False) -> MLP:
    """[B, in_size] -> [B, layers[-1]]: linear layers, each followed by ReLU and, if asked for, dropout. A linear end has neither."""
    parts: list[nn.Module] = []
    for position, (n_in, n_out) in enumerate(zip([in_size, *layers], layers)):
        parts.append(Linear(n_in, n_out, device=device))
        if linear_end and position == len(layers) - 1:
            break
        parts.append(nn.ReLU())
        if dropout:
            parts.append(nn.Dropout(dropout))
    return MLP(*parts)


@torch.no_grad()
def begin_silent(over: MLP, bias: float) -> None:
    """Lets the MLP `over`, of a linear end, give `bias` for any input until it has been trained."""
    last = over[-1]
    assert isinstance(last, Linear), "a linear end"
    last.weight.zero_()
    last.bias.fill_(bias)


class LowRankCross(nn.Module):
    """DCN-v2's cross layers with W = U V of rank r (Wang et al. 2021, equation 2): x <- x0 * (U V x + b) + x. [B, N] -> [B, N]."""

    def __init__(self, width: int, layers: int, rank: int, device: torch.device | None):
        super().__init__()
        self.down = nn.ModuleList([Linear(width, rank, bias=False, device=device) for _ in range(layers)])
        self.up = nn.ModuleList([Linear(rank, width, device=device) for _ in range(layers)])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Xavier normal weights and zero biases, as in TorchRec."""
        for down, up in zip(self.down, self.up):
            nn.init.xavier_normal_(down.get_parameter("weight"))
            nn.init.xavier_normal_(up.get_parameter("weight"))
            nn.init.zeros_(up.get_parameter("bias"))

    def forward(self, x0: Tensor) -> Tensor:
        x = x0
        for down, up in zip(self.down, self.up):
            x = _PlusProduct.apply(x, x0, up(down(x)))
        return x


class _PlusProduct(torch.autograd.Function):
    """x + a b of equal shapes. The backward pass of torch's own multiplies a and b by one before: two more passes over them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return torch.addcmul(x, a, b)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, b = ctx.saved_tensors
        return grad, grad * b, grad * a


#: Where dots are computed pair by pair: up to so many vectors, from so many samples on.
FEW_VECTORS, MANY_SAMPLES = 7, 512
#: Of vectors from so long on, the C++ kernels compute all dots of a sample at once. Shorter ones keep the bits of torch's sums.
LONG_VECTORS = 32


def dot_interaction(*parts: Tensor, lead: bool = False) -> Tensor:
    """Vectors in parts, each [B, any number, D], F in all -> [B, F (F - 1) / 2].

    These are the dot products of all pairs of different vectors, the strict upper triangle row by row. `lead`: the first vector itself
    before them, [B, D + F (F - 1) / 2].

    On a CPU by a kernel of ours for long vectors, which reads them where they are. Else pair by pair for few vectors and many samples
    (DMT, section 4), or through all F * F dots. An exported program has the last, for any number of samples.
    """
    first, exporting = parts[0], torch.compiler.is_exporting()
    if not exporting and first.shape[2] >= LONG_VECTORS and sum(part.shape[1] for part in parts) > 1 and _for_kernel(parts):
        return _PairDots.apply(lead, *parts)
    x = first if len(parts) == 1 else torch.cat(parts, dim=1)
    by_pairs = not exporting and 2 <= x.shape[1] <= FEW_VECTORS and x.shape[0] >= MANY_SAMPLES
    dots = dots_of_pairs(x) if by_pairs else dots_of_all(x)
    return torch.cat([first[:, 0], dots], dim=1) if lead else dots


def _for_kernel(parts: Sequence[Tensor]) -> bool:
    kinds = {(part.device.type, part.dtype) for part in parts}
    return kinds in ({("cpu", dtype)} for dtype in dense.FORMATS) and available()


class _PairDots(torch.autograd.Function):
    """`dot_interaction` through the C++ kernels: the triangle alone, summed in FP32, without the F * F dots in between."""

    @staticmethod
    def forward(ctx: Any, lead: bool, *parts: Tensor) -> Tensor:
        ctx.lead = lead
        ctx.save_for_backward(*parts)
        return dense.pair_dots(parts, lead=lead)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return None, *dense.pair_dots_backward(ctx.saved_tensors, grad, lead=ctx.lead)


def dots_of_all(x: Tensor) -> Tensor:
    """`dot_interaction` as one batched matrix product, of which half is thrown away."""
    features = x.shape[1]
    row, col = torch.triu_indices(features, features, offset=1, device=x.device)
    return matmul(x, x.transpose(1, 2)).flatten(1).index_select(1, row * features + col)


def dots_of_pairs(x: Tensor) -> Tensor:
    """`dot_interaction` of two vectors or more, as a product and a sum for each pair.

    It takes all samples at once, where `bmm` takes them one by one.
    """
    return torch.stack([(a * b).sum(1) for a, b in combinations(x.unbind(1), 2)], dim=1)


def check_arch(embedding_dim: int, bottom_layers: Sequence[int], over_layers: Sequence[int]) -> None:
    """Raises UserError unless the bottom MLP gives a vector as wide as an embedding, and the over MLP a logit."""
    check_layers("model.bottom_layers", bottom_layers, embedding_dim, "as wide as an embedding")
    check_layers("model.over_layers", over_layers, 1, "one logit")


def check_layers(where: str, layers: Sequence[int], end: int, meaning: str) -> None:
    """Checks the widths of an MLP.

    Args:
        where: the key, such as "model.over_layers".
        layers: widths, from the first layer to the last.
        end: what the last must be.
        meaning: of the last layer, in words.

    Raises:
        UserError: there is no layer, or the last has another width.
    """
    if not layers or layers[-1] != end:
        raise UserError(f"the last layer must be {meaning}", where=where, given=list(layers), allowed=f"a list that ends in {end}")
