# The operator, and `dtj` beside it.
#
#   docker build --tag dtj-operator .
#
# A release pins the base: --build-arg BASE=debian:bookworm-slim@sha256:<digest>. Proxies (HTTP_PROXY, HTTPS_PROXY,
# NO_PROXY) and pip's own variables can be given as build arguments. Where /run/ca.crt or /etc/pip.conf is mounted into
# the build, pip uses it; none of them gets into the image.
ARG BASE=debian:bookworm-slim

FROM ${BASE} AS python
# Debian's Python: security updates come with the base.
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 \
 && apt-get clean \
 && rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/*

FROM python AS build
ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ARG PIP_TRUSTED_HOST
ARG PIP_DEFAULT_TIMEOUT
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_NO_INPUT=1 PIP_ROOT_USER_ACTION=ignore
RUN apt-get update && apt-get install --yes --no-install-recommends python3-venv
RUN python3 -m venv /opt/dtj && python3 -m venv /build

COPY requirements/operator.lock requirements/build.lock /src/requirements/
RUN if [ -f /run/ca.crt ]; then export PIP_CERT=/run/ca.crt; fi \
 && /opt/dtj/bin/pip install --no-compile --no-deps --only-binary=:all: --require-hashes --requirement /src/requirements/operator.lock \
 && /build/bin/pip install --no-compile --no-deps --only-binary=:all: --require-hashes --requirement /src/requirements/build.lock

COPY pyproject.toml README.md LICENSE /src/
COPY operator /src/operator
RUN /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /dist /src \
 && /opt/dtj/bin/pip install --no-compile --no-deps --no-index /dist/*.whl \
 && /opt/dtj/bin/pip uninstall --yes setuptools pip

# What is left is compiled here, since the file system is read-only later.
COPY scripts/slim_client.py /build/
RUN /opt/dtj/bin/python -B /build/slim_client.py \
 && /opt/dtj/bin/python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/dtj/lib \
 && /opt/dtj/bin/dtj-operator --version \
 && /opt/dtj/bin/dtj --version

FROM python
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="dtj-operator" \
      org.opencontainers.image.description="Runs DistributedTrainingJobs: TensorFlow's distribution strategies on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/dtj /opt/dtj
# A user without an entry in /etc/passwd, as each of OpenShift's is, has neither home nor name unless the environment
# says so. The Kubernetes client asks for the one, kopf for the other, and both fail where there is none.
ENV PATH=/opt/dtj/bin:$PATH HOME=/ USER=dtj PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
# Numeric, so that the kubelet can see that it is not root (runAsNonRoot).
USER 65532:65532
WORKDIR /
# 8080: /healthz and /readyz, 8000: /metrics
EXPOSE 8080 8000
ENTRYPOINT ["dtj-operator"]
