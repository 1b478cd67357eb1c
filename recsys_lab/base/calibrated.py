"""The one rule for figures of a machine that nobody has measured: what follows from them is shown nowhere."""

#: In the source of a device whose figures are another machine's (conf/cluster/local.yaml).
NOT_CALIBRATED = "calibrate was not run on this machine"


def is_calibrated(source: str) -> bool:
    """Whether figures of this `source` are of the device that they are named for."""
    return NOT_CALIBRATED not in source
