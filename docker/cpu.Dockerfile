# recsys_lab for a machine without a GPU, from requirements/cpu.txt. docs/docker.md says how to build it.
#   docker build -f docker/cpu.Dockerfile --build-arg PIP_EXTRA_INDEX_URL=INDEX -t recsys_lab:cpu .
#   docker run --rm -v "$PWD/runs:/recsys_lab/runs" recsys_lab:cpu python run.py
FROM python:3.11-slim-bookworm

# g++ compiles the kernels at their first use.
# Debian removes old versions, so none is pinned.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ make \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 1000 lab \
    && install --directory --owner=lab /recsys_lab
USER 1000
WORKDIR /recsys_lab

# The environment alone: a change of the code does not build it anew. INDEX has PyTorch's builds for the CPU.
ARG PIP_EXTRA_INDEX_URL=""
COPY --chown=1000 Makefile ./
COPY --chown=1000 requirements requirements
RUN PIP_EXTRA_INDEX_URL="$PIP_EXTRA_INDEX_URL" PIP_NO_CACHE_DIR=1 make env LOCK=cpu

COPY --chown=1000 . ./
RUN make env && mkdir -p runs
ENV PATH=/recsys_lab/.venv/bin:$PATH
CMD ["python", "-m", "recsys_lab", "doctor"]
