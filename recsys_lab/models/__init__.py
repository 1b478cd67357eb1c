"""Models for one device, a folder each: its options, which import no torch, then its network, whose `predict` reads as the paper's figure.

They know nothing of ranks. Their tables can be replaced by sharded ones.
"""
