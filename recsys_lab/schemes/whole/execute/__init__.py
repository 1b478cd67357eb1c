"""The exchange of whole tables' pooled rows as the CPU DLRM paper does it (Kalamkar et al. 2020, sections IV-B and IV-C).

Tables lie whole on one rank each, samples on all: pooled rows go from the ranks that look them up to those whose samples want them.

scatter_list    a scatter a table, and a gather of its gradient
fused_scatter   a scatter a rank, of all its tables' columns at once
all_to_all      one call

pieces      what travels in which call
ways        the calls
pooled      one exchange in place of TorchRec's, forward and backward, overlapped or blocking
"""
