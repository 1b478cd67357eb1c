"""Questions a link's figure that no link on file comes near, such as gigabits that stand for gigabytes."""

from __future__ import annotations

from recsys_lab.cluster.topology import Cluster

#: GB/s, slowest and fastest, of what collectives reach of the links in `conf/cluster/link`, by their place in a cluster.
ON_FILE = {"intra_host": (6.0, 740.0), "cross_host": (6.0, 90.0)}
WORDS = {"intra_host": "links within a host", "cross_host": "links between hosts"}
#: So many times the fastest on file is not questioned: links become faster.
FASTER = 1.5
BITS = 8


def doubt(cluster: Cluster) -> str | None:
    """The links' figures that may be in another unit, and what to do; None where there are none."""
    used = [name for name, many in (("intra_host", cluster.ranks_per_host > 1), ("cross_host", cluster.hosts > 1)) if many]
    return "; ".join(words for name in used if (words := _of_link(cluster, name))) or None


def _of_link(cluster: Cluster, name: str) -> str | None:
    link, (least, most) = getattr(cluster, name), ON_FILE[name]
    figures = {key: getattr(link, key) for key in ("bandwidth_gb_s", "ring_gb_s")}
    beyond = {key: gb_s for key, gb_s in figures.items() if gb_s is not None and gb_s > FASTER * most}
    if not beyond:
        return None
    given = ", ".join(f"cluster.{name}.{key}={gb_s:g}" for key, gb_s in beyond.items())
    in_bytes = ", ".join(f"{key}={gb_s / BITS:g}" for key, gb_s in beyond.items())
    return f"{given}: really GB/s? {WORDS[name]} on file reach {least:g} to {most:g} GB/s; if it is Gbit/s, give {in_bytes}"
