# recsys_lab for NVIDIA GPUs, from requirements/cuda.txt. docs/docker.md says how to build it.
#   docker build -f docker/cuda.Dockerfile -t recsys_lab:cuda .
#   docker run --rm --gpus all --shm-size 16g -v "$PWD/runs:/recsys_lab/runs" recsys_lab:cuda python run.py
FROM python:3.11-slim-bookworm

# CUDA comes with the lock, so that the image needs none. g++ is for Triton and the kernels of the CPU.
# Debian removes old versions, so none is pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ make \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 lab \
    && install --directory --owner=lab /recsys_lab
USER 1000
WORKDIR /recsys_lab

# The environment alone: a change of the code does not build it anew.
COPY --chown=1000 Makefile ./
COPY --chown=1000 requirements requirements
RUN PIP_NO_CACHE_DIR=1 make env LOCK=cuda

COPY --chown=1000 . ./
RUN make env && mkdir -p runs
ENV PATH=/recsys_lab/.venv/bin:$PATH \
    NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
CMD ["python", "-m", "recsys_lab", "doctor"]
