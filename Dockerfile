# docker build -t fairlane .
# Builds the wheel (with the dashboard), then installs only the wheel in a small image.
FROM node:22-bookworm-slim AS dashboard
WORKDIR /src
COPY . .
RUN npm --prefix frontend ci && npm --prefix frontend run build

FROM python:3.13-slim-bookworm AS wheel
WORKDIR /src
COPY --from=dashboard /src .
RUN pip install --no-cache-dir "build==1.3.0" && FAIRLANE_SKIP_DASHBOARD=1 python -m build --wheel --outdir /wheel

FROM python:3.13-slim-bookworm
LABEL org.opencontainers.image.title="Fairlane" \
      org.opencontainers.image.description="A priority job queue and gateway for scarce AI capacity." \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 10001 --create-home --home-dir /var/lib/fairlane fairlane
COPY constraints.txt /tmp/
RUN --mount=type=bind,from=wheel,source=/wheel,target=/wheel \
    pip install --no-cache-dir --constraint /tmp/constraints.txt "$(ls /wheel/*.whl)[cluster]"
USER 10001
WORKDIR /var/lib/fairlane
VOLUME /var/lib/fairlane
# Beyond loopback a key is required: set FAIRLANE_ADMIN_KEY, or create one with `fairlane keys create`.
ENV FAIRLANE_SERVER__HOST=0.0.0.0 \
    FAIRLANE_SERVER__DATA=/var/lib/fairlane \
    PYTHONUNBUFFERED=1
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/livez', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["fairlane"]
CMD ["serve"]
