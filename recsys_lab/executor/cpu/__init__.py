"""What only makes ranks on CPUs fast. Training gives the same result without it; `tests/executor/test_plain.py` proves it.

| file | what it does | off by |
|---|---|---|
| `shared_memory` | collectives through the memory of one machine, not sockets | `RECSYS_LAB_COLLECTIVES=gloo` |
| `id_exchange` | two C++ kernels lay out the ids of pooled tables | `RECSYS_LAB_POOLED_EXCHANGE=torchrec` |
| `row_exchange` | our exchange of pooled rows in place of TorchRec's | `RECSYS_LAB_POOLED_EXCHANGE=torchrec` |
| `scattered_mean` | dense gradients averaged by a reduce-scatter and an all-gather, if asked to | `dense_sync: all_reduce` |
| `threads` | each rank keeps to cores of its own | `RECSYS_LAB_CORES=any` and `communication_cores: 0` |

The kernels' part stands in `recsys_lab/kernels/cpu`, since kernels may not import the executor:

| file | what it decides | off by |
|---|---|---|
| `products` | which library multiplies matrices | `RECSYS_LAB_BF16_PRODUCTS=bf16` and its three neighbours |
| `row_prefetch` | how rows are prefetched | `RECSYS_LAB_ROW_PREFETCH=write` |
| `nontemporal_stores` | whether large results bypass the caches | `RECSYS_LAB_LARGE_RESULTS=cached` |

`recsys_lab.base.environment.PLAIN` has all of these settings.
"""
