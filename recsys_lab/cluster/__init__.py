"""The machine that a plan is made for: hosts, ranks, devices, memory and links. Pure data, read from `conf/cluster/*.yaml`."""

from recsys_lab.cluster.doubts import doubt
from recsys_lab.cluster.failures import Failures
from recsys_lab.cluster.memory import Disk, Host
from recsys_lab.cluster.price import ListPrice, Price
from recsys_lab.cluster.topology import Cluster, Device, Link, ranks_text, ranks_words

__all__ = ["Cluster", "Device", "Disk", "Failures", "Host", "Link", "ListPrice", "Price", "doubt", "ranks_text", "ranks_words"]
