#!/usr/bin/env bash
# Builds .venv from one lock: `requirements/make_env.sh cpu|cuda|auto`. `make env` calls it.
# .venv/lock.sha256 is written last: where it is missing or differs, the environment is built anew.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

lock=${1:-auto}
say() { printf 'env: %s\n' "$*"; }
fail() { printf 'env: %s\n' "$*" >&2; exit 2; }

stamp=.venv/lock.sha256
up_to_date() { # with one of the given locks
    local name
    [ -x .venv/bin/python ] || return 1
    for name in "$@"; do [ "$(sha256sum "requirements/$name.txt")" = "$(cat "$stamp" 2>/dev/null)" ] && return; done
    return 1
}

if [ "$lock" = auto ]; then
    up_to_date cpu cuda && exit 0 # what was chosen before stays
    lock=cpu
    if command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | grep -q '^GPU '; then lock=cuda; fi
fi
locked=requirements/$lock.txt
[ -f "$locked" ] || fail "no such lock; given LOCK=$lock; allowed: cpu, cuda, auto"
up_to_date "$lock" && exit 0

# One builder at a time in this checkout; a second one waits and then finds the work done.
exec 9<Makefile
if command -v flock >/dev/null; then
    flock --nonblock 9 || { say "another make builds .venv, waiting for it"; flock 9; }
    up_to_date "$lock" && exit 0
fi

find_python() { # prints the real interpreter, never one inside a virtual environment that is about to be replaced
    local name
    for name in ${PYTHON:-python3.11 python3}; do
        "$name" -c 'import sys; sys.version_info[:2] == (3, 11) or sys.exit(1); print(sys._base_executable)' 2>/dev/null && return
    done
    return 1
}
python=$(find_python) || fail "Python 3.11 is needed; found ${PYTHON:-$(python3 --version 2>/dev/null || echo none)}; install python3.11, or name one: make env PYTHON=FILE"

began=$SECONDS
export PIP_USER=0 PIP_NO_INPUT=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_REQUIRE_VIRTUALENV=0 PYTHONNOUSERSITE=1
unset PYTHONHOME PYTHONPATH
log=$(mktemp)
heart=
trap '[ -z "$heart" ] || kill "$heart" 2>/dev/null || true; rm -f "$log"' EXIT

say "building .venv with $("$python" --version 2>&1) from $locked ($(grep -c == "$locked") packages)"
rm -rf .venv
"$python" -m venv .venv >"$log" 2>&1 || fail "$python cannot make a virtual environment ($(tail -n 1 "$log")); on Debian and Ubuntu: apt install python3.11-venv"

(while sleep 20 >/dev/null 2>&1; do say "still installing, $((SECONDS - began)) s"; done) 9<&- &
heart=$!

# No compiling to .pyc (the import below does it for what is used, a third of the files), no build isolation (it would fetch unlocked
# build tools; setuptools is in the lock), no dependencies (the lock is complete).
pip_install() { .venv/bin/python -m pip install -qq --no-deps --no-compile --no-build-isolation "$@" >"$log" 2>&1 9<&-; }
if ! { pip_install "$(grep '^setuptools==' "$locked")" && pip_install -r "$locked"; }; then
    cat "$log" >&2
    fail "the install failed, see above; mend the cause (network? disk?) and run make env again"
fi

# Which build of torch pip finds depends on where pip is told to look; the wrong one would not even import.
cuda_build=no
[ -e .venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so ] && cuda_build=yes
case $lock-$cuda_build in
    cpu-yes) fail "pip found torch's CUDA build for the CPU lock; give pip PyTorch's index of CPU builds (PIP_EXTRA_INDEX_URL) and run make env again" ;;
    cuda-no) fail "pip found torch's CPU build for the CUDA lock; take that source away from pip (PIP_EXTRA_INDEX_URL, PIP_FIND_LINKS) and run make env again" ;;
esac

# The first import: shows that the install is whole, and compiles what is used, also where PYTHONDONTWRITEBYTECODE is set.
used="torch, torch._dynamo, lightning.pytorch, hydra, wandb, polars"
# FBGEMM's build for CUDA loads a library of the driver, which a login node or the build of an image may lack.
if [ "$lock" = cpu ] || .venv/bin/python -c 'import ctypes; ctypes.CDLL("libnvidia-ml.so.1")' 2>/dev/null; then
    used="$used, torchrec.distributed.model_parallel, torchrec.distributed.planner"
else
    say "no NVIDIA driver here, so that TorchRec is not imported; on the GPU's machine: .venv/bin/python -m recsys_lab doctor"
fi
used="$used, scipy.stats, sklearn.metrics, k_means_constrained, matplotlib.pyplot, tensorboardX, safetensors.torch, rich.progress, pytest, hypothesis"
if ! env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -W ignore -c "import $used" >"$log" 2>&1 9<&-; then
    cat "$log" >&2
    fail "installed, but it cannot be imported, see above"
fi

# Our C++ kernels, which would otherwise be compiled at first use. Without a compiler PyTorch does their work.
# An image builds its environment before the checkout is there.
[ ! -d recsys_lab ] || .venv/bin/python -W ignore -c 'from recsys_lab import kernels; kernels.available() or print("kernels:", kernels.why_not())' || true

sha256sum "$locked" >"$stamp"
say "done in $((SECONDS - began)) s"
