# One image for all processes of the platform: `gpu-platform api`, `reconciler` and `stack-worker`. Built by
# `docker build --tag gpu-platform .`; tests/architecture/test_dockerfile.py checks every path and command in it.

# A tag can be moved: releases name both by digest (`make image`, CONTRIBUTING.md).
ARG BASE_IMAGE=python:3.12-slim
ARG PULUMI_IMAGE=pulumi/pulumi-base:3.259.0

FROM ${BASE_IMAGE} AS packages
# The base and the extra `server`.
COPY requirements/runtime.txt /build/requirements.txt
# Every package by its hash, and only wheels: nothing is compiled, and nothing runs at installation.
RUN python -m venv /opt/venv \
    && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --only-binary :all: --require-hashes \
        --requirement /build/requirements.txt \
    && /opt/venv/bin/pip uninstall --yes --quiet pip

# The stack worker runs Pulumi's own command; the programs are ours, so it needs neither a language host nor a plugin.
FROM ${PULUMI_IMAGE} AS pulumi

FROM ${BASE_IMAGE}
COPY --from=pulumi /pulumi/bin/pulumi /usr/local/bin/pulumi
COPY --from=packages /opt/venv /opt/venv
# Without the development cluster: .dockerignore leaves it out.
COPY gpu_platform /opt/gpu-platform/gpu_platform
COPY platform_api /opt/gpu-platform/platform_api
COPY providers /opt/gpu-platform/providers
COPY reconciler /opt/gpu-platform/reconciler
COPY serverless /opt/gpu-platform/serverless
COPY stacks /opt/gpu-platform/stacks
COPY --chmod=0755 tools/image/gpu-platform /usr/local/bin/gpu-platform
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONPATH=/opt/gpu-platform \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    USER=gpu-platform \
    HOME=/tmp
# A number, so that Kubernetes can see that it is not root. It has no passwd entry: Pulumi takes USER and HOME
# instead. The file system may be read-only but for /tmp.
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["gpu-platform"]
CMD ["--help"]
