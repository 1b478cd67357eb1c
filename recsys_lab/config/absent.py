"""What the four papers compare with or build on and this project has not: the reason, and the nearest choice."""

from __future__ import annotations

_SYNCHRONOUS = "training is synchronous here, as Neo's (sections 3 and 8.2); nearest: sharder=neo_4d"
_NO_MPI = (
    "no MPI and no oneCCL: CPU ranks exchange through shared memory, or gloo (RECSYS_LAB_COLLECTIVES=gloo), "
    "GPUs through NCCL; profile@simulate.profile=cpu prices oneCCL"
)
#: By group and choice.
CHOICES = {
    "sharder": dict.fromkeys(
        ("parameter_server", "parameter_servers", "ps", "easgd", "hogwild", "async", "asynchronous"),
        _SYNCHRONOUS,
    ),
    "launcher": dict.fromkeys(("mpi", "mpirun", "ccl", "oneccl"), f"{_NO_MPI}; several hosts: launcher=torchrun or slurm"),
    "precision": {
        "fp16": "FP16 is of what travels or is stored: precision=fp16_comms or fp16_tables; products in 16 bits: precision=bf16",
        "fp8": "rows and their gradients travel in FP8: precision=fp8_comms; nothing is stored or computed in it",
        "int8": "nothing trains in INT8; what travels is priced so: mode=simulate precision.forward_comm=int8",
    },
}
#: By key.
KEYS = dict.fromkeys(("launcher.backend", "trainer.backend", "backend"), _NO_MPI)
KEYS["data.splits"] = "these data are one log, divided by leave-one-out; data=table, criteo and frappe read data.splits.test=FILE"
