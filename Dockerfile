# logqueue in a container.
#
#   docker build -t logqueue .
#   docker run -p 4000:4000 -v logqueue-data:/data -e LOGQUEUE_API_KEYS=<secret> logqueue
#
# The server listens beyond the container, so it refuses to start without keys: LOGQUEUE_API_KEYS
# is a comma-separated list of secret[:scopes[:prefixes]]. Where something in front of it already
# keeps strangers out, -e LOGQUEUE_ALLOW_INSECURE_NO_AUTH=1 takes the place of keys.
#
# All state is in the volume /data. Stop with "docker stop -t 15" so that requests in progress have
# the 10 seconds they may take. With LOGQUEUE_PROBE_AUTH=1 the health check below has no key: give
# your own with --health-cmd.

FROM python:3.12-slim AS build
WORKDIR /src
COPY requirements-server.lock ./
# Everything is fetched here, checked against the hashes of the lock; nothing after it is.
RUN pip download --quiet --require-hashes --only-binary :all: --dest /wheels -r requirements-server.lock \
 && pip install --quiet --no-index --find-links /wheels --require-hashes -r requirements-server.lock
COPY pyproject.toml README.md LICENSE ./
COPY wal ./wal
COPY logqueue ./logqueue
# The lock also pins what builds the project: the image gets the project and what the server needs.
RUN pip wheel --quiet --no-index --no-deps --no-build-isolation --wheel-dir /wheels . \
 && python -m venv --without-pip /opt/logqueue \
 && pip --python /opt/logqueue/bin/python install --quiet --no-index --find-links /wheels 'logqueue[server,replica]'

FROM python:3.12-slim
RUN useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin logqueue \
 && install --directory --owner=logqueue --group=logqueue --mode=0750 /data /replica
COPY --from=build /opt/logqueue /opt/logqueue
ENV PATH=/opt/logqueue/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    LOGQUEUE_HOST=0.0.0.0 \
    LOGQUEUE_PORT=4000 \
    LOGQUEUE_DATA_DIR=/data
USER 10001
VOLUME /data
EXPOSE 4000
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
  CMD ["python", "-c", "import os, urllib.request as r; r.urlopen('http://127.0.0.1:' + os.environ['LOGQUEUE_PORT'] + '/v0/ready', timeout=2)"]
CMD ["logqueue", "serve"]
