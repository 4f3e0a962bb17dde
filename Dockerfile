# docker build -t crosspoint . && docker run --rm -p 127.0.0.1:8000:8000 -v crosspoint:/data crosspoint
# With NVIDIA's container toolkit: docker run --gpus all …

FROM python:3.13-slim-bookworm AS build
# Which index torch comes from; empty: pip's own. torch's install page names one of CPU builds, which saves 5 GB.
ARG TORCH_INDEX=""
# No extra index: a pip.conf that the build host mounts may name one whose files are not in here.
ARG PIP_EXTRA_INDEX_URL=file:///none
ARG PIP_CACHE_DIR=/var/cache/pip
RUN python3 -m venv /opt/crosspoint
WORKDIR /src
COPY constraints.txt pyproject.toml README.md LICENSE ./
# Dependencies first, so that a change of ours does not fetch torch again.
RUN --mount=type=cache,target=/var/cache/pip \
    if [ -n "$TORCH_INDEX" ]; then /opt/crosspoint/bin/pip install -c constraints.txt --index-url "$TORCH_INDEX" torch; fi \
    && mkdir -p app probes && touch app/__init__.py probes/__init__.py \
    && /opt/crosspoint/bin/pip install --disable-pip-version-check -c constraints.txt .
COPY app app
COPY probes probes
RUN /opt/crosspoint/bin/pip install --disable-pip-version-check --no-deps --force-reinstall . \
    && /opt/crosspoint/bin/pip uninstall --yes pip

FROM python:3.13-slim-bookworm
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin crosspoint \
    && mkdir /data && chown crosspoint /data
COPY --from=build /opt/crosspoint /opt/crosspoint
ENV PATH=/opt/crosspoint/bin:$PATH \
    CROSSPOINT_DATA_DIR=/data \
    CROSSPOINT_HOST=0.0.0.0 \
    PYTHONDONTWRITEBYTECODE=1
USER crosspoint
VOLUME /data
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 \
    CMD ["python3", "-P", "-m", "app.healthcheck"]
CMD ["crosspoint", "serve"]
