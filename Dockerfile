# The gateway, the simulated inference server and every other command, for one unprivileged user on a read-only root.
#
#   docker build --tag responses-gateway .
#
# The base needs Python 3.11 or newer with venv, on glibc. Wheels in a folder wheels/ beside this file are installed
# as they are, without a network; when there are none, they are made here. docs/deploy/image.md tells more.

ARG BASE_IMAGE=python:3.13-slim

FROM ${BASE_IMAGE} AS build
ARG EXTRAS=postgres,otlp,auth,mcp
# The glob matches nothing when there is no such folder, and LICENSE keeps that from being an error.
COPY LICENSE wheel[s] /wheels/
COPY pyproject.toml constraints.txt README.md LICENSE /src/
COPY config /src/config
COPY alembic /src/alembic
COPY gateway /src/gateway
RUN python3 -m venv /opt/gateway
RUN set -e; \
    if ! ls /wheels/*.whl >/dev/null 2>&1; then \
        /opt/gateway/bin/pip wheel --quiet --no-cache-dir --prefer-binary --constraint /src/constraints.txt \
            --wheel-dir /wheels "/src[${EXTRAS}]"; \
    fi; \
    /opt/gateway/bin/pip install --quiet --no-index --find-links /wheels "responses-gateway[${EXTRAS}]"; \
    /opt/gateway/bin/pip uninstall --quiet --yes pip; \
    /opt/gateway/bin/gateway version

FROM ${BASE_IMAGE}
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Responses Gateway" \
      org.opencontainers.image.description="Serves the OpenAI Responses API in front of vLLM" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"

# Reaps what worker processes leave behind and hands signals on. Whichever version the distribution has will do.
# hadolint ignore=DL3008
RUN if ! command -v tini >/dev/null; then \
        apt-get update && apt-get install --yes --no-install-recommends tini && rm -rf /var/lib/apt/lists/*; \
    fi
# No useradd, which slim bases lack.
RUN echo 'gateway:x:10001:10001::/var/lib/gateway:/usr/sbin/nologin' >>/etc/passwd \
    && echo 'gateway:x:10001:' >>/etc/group \
    && install --directory --owner 10001 --group 10001 --mode 0750 /var/lib/gateway

COPY --from=build /opt/gateway /opt/gateway
COPY config/examples/container.toml /etc/gateway/gateway.toml

ENV PATH=/opt/gateway/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    GATEWAY_CONFIG=/etc/gateway/gateway.toml
USER 10001:10001
WORKDIR /var/lib/gateway
VOLUME /var/lib/gateway
EXPOSE 9000 9901
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 CMD ["gateway", "health"]
ENTRYPOINT ["tini", "--", "gateway"]
CMD ["serve"]
