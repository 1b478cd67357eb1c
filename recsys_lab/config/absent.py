"""What the four papers compare with or build on and this project has not: the reason, and the nearest choice."""

from __future__ import annotations

_SYNCHRONOUS = "training is synchronous here, as Neo's (sections 3 and 8.2); nearest: sharder=neo_4d"
#: By group and choice.
CHOICES = {
    "sharder": dict.fromkeys(("parameter_server", "parameter_servers", "ps", "easgd", "hogwild"), _SYNCHRONOUS),
}
#: By key.
KEYS = {
    "launcher.backend": "no MPI and no oneCCL: CPU ranks exchange through shared memory, or gloo (RECSYS_LAB_COLLECTIVES=gloo), "
    "GPUs through NCCL; profile@simulate.profile=cpu prices oneCCL",
}
