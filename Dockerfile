# Targets: `live`, the daemon (the default: the last stage); `destinations`, the daemon with the clients
# of PostgreSQL, Kafka, NATS, Redis and HTTP; `lake`, the daemon with what its parquet handler needs, both
# with OpenTelemetry; and `pipeline`, which has Spark and a JRE. All run as 10001:10001, write only to /data (Spark also to
# /tmp), and contain no build tools.
#
#   docker build -t tailrace .
#   docker build -t tailrace:pipeline --target pipeline .

# --- the environment, built in the stage that has the tools ----------------------------------

FROM python:3.12-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /build
COPY deploy/requirements/build.txt requirements/
RUN python -m venv /build/tools \
 && /build/tools/bin/pip install --require-hashes --only-binary :all: -r requirements/build.txt
# The dependencies come before the sources, so that a change of the sources does not fetch them again.
COPY deploy/requirements/live.txt requirements/
RUN /build/tools/bin/pip wheel --require-hashes --only-binary :all: --no-deps \
        --wheel-dir /build/wheels -r requirements/live.txt
COPY pyproject.toml README.md LICENSE config.yaml ./
COPY service service
RUN /build/tools/bin/pip wheel --no-build-isolation --no-deps --wheel-dir /build/wheels .
# Byte code is not checked against its source, because the root file system is read-only.
RUN python -m venv --without-pip /opt/tailrace \
 && /build/tools/bin/pip --python /opt/tailrace/bin/python install \
        --no-index --no-deps --no-compile /build/wheels/*.whl \
 && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/tailrace/lib

FROM build AS build-lake
COPY deploy/requirements/lake.txt requirements/
RUN /build/tools/bin/pip wheel --require-hashes --only-binary :all: --no-deps \
        --wheel-dir /build/lake -r requirements/lake.txt \
 && /build/tools/bin/pip --python /opt/tailrace/bin/python install \
        --no-index --no-deps --no-compile /build/lake/*.whl \
 && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/tailrace/lib

FROM build AS build-destinations
COPY deploy/requirements/destinations.txt requirements/
# nkeys is published only as source, like pyspark below; it is built with the tools that are locked above.
RUN /build/tools/bin/pip wheel --require-hashes --only-binary :all: --no-binary nkeys \
        --no-build-isolation --no-deps \
        --wheel-dir /build/destinations -r requirements/destinations.txt \
 && /build/tools/bin/pip --python /opt/tailrace/bin/python install \
        --no-index --no-deps --no-compile /build/destinations/*.whl \
 && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/tailrace/lib

FROM build AS build-pipeline
COPY deploy/requirements/pipeline.txt requirements/
# pyspark is published only as source, too. The jars for S3 are fetched by Maven, and checked by their
# hashes (service/tailrace/pipeline/jars.txt).
RUN /build/tools/bin/pip wheel --require-hashes --no-build-isolation --no-deps \
        --wheel-dir /build/pipeline -r requirements/pipeline.txt \
 && /build/tools/bin/pip --python /opt/tailrace/bin/python install \
        --no-index --no-deps --no-compile /build/pipeline/*.whl \
 && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/tailrace/lib
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends maven \
 && rm -rf /var/lib/apt/lists/* \
 && TAILRACE_SPARK_JARS=/opt/tailrace/jars /opt/tailrace/bin/tailrace pipeline --fetch-jars

# --- what all targets share ----------------------------------------------------------------

FROM python:3.12-slim AS base
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Tailrace" \
      org.opencontainers.image.description="Follows MongoDB change streams and delivers every change, in order, to your handlers." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Your own handlers are in the directory of the configuration. Relative paths begin at /, so `data/`, as
# in the repository's config.yaml, is the volume.
ENV PATH=/opt/tailrace/bin:$PATH \
    PYTHONPATH=/etc/tailrace \
    TAILRACE_CONFIG=/etc/tailrace/config.yaml
WORKDIR /
RUN groupadd --gid 10001 tailrace \
 && useradd --uid 10001 --gid 10001 --home-dir /nonexistent --no-create-home \
        --shell /usr/sbin/nologin tailrace \
 && install --directory --owner 10001 --group 10001 --mode 0750 /data \
 && rm -rf "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"/pip* \
        "$(dirname "$(command -v python3)")"/pip*
COPY deploy/docker/config.yaml /etc/tailrace/config.yaml
EXPOSE 9464
STOPSIGNAL SIGTERM
# Tailrace is process 1 itself: it handles SIGTERM from the start and starts no processes.
ENTRYPOINT ["tailrace"]

# --- pipeline ------------------------------------------------------------------------------

FROM base AS pipeline
# The JRE of the base image's Debian release with its security updates, not a pinned version.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends default-jre-headless procps \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build-pipeline /opt/tailrace /opt/tailrace
ENV PYSPARK_PYTHON=/opt/tailrace/bin/python \
    TAILRACE_SPARK_JARS=/opt/tailrace/jars
# Each run of a CronJob then starts Spark in half of the CPU time. It is also a first test.
RUN tailrace pipeline --archive-classes
USER 10001:10001
CMD ["pipeline", "--lake", "/data/lake", "--tables", "/data/tables"]

# --- the daemon ----------------------------------------------------------------------------

# The base image has no byte code of the standard library, so each start would compile it. This compiles
# once what the daemon and its health check import. It is also a first test.
FROM base AS lake
COPY --from=build-lake /opt/tailrace /opt/tailrace
RUN MONGODB_URI=mongodb://localhost tailrace check \
 && python -c 'import tailrace.app, tailrace.destinations.parquet, tailrace.telemetry.sdk'
ENV PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
CMD ["run"]
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 CMD ["tailrace", "health"]

FROM base AS destinations
COPY --from=build-destinations /opt/tailrace /opt/tailrace
RUN MONGODB_URI=mongodb://localhost tailrace check \
 && python -c 'import tailrace.app, psycopg, confluent_kafka, nats, redis, aiohttp, tailrace.telemetry.sdk'
ENV PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
CMD ["run"]
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 CMD ["tailrace", "health"]

# The same without what the lake needs. No stage builds on the other, because each copies an environment.
FROM base AS live
COPY --from=build /opt/tailrace /opt/tailrace
RUN MONGODB_URI=mongodb://localhost tailrace check && python -c 'import tailrace.app'
ENV PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
CMD ["run"]
HEALTHCHECK --interval=30s --timeout=10s --start-period=30s --retries=3 CMD ["tailrace", "health"]
