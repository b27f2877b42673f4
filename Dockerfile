# syntax=docker/dockerfile:1
# The image holds Node and the built gateway, libraries included. Nothing of the build stays in it.

# For a build of your own. A release names its base image with a digest (.github/workflows/release.yml).
ARG NODE_IMAGE=node:26-slim

FROM ${NODE_IMAGE} AS base
# The least Node that may face callers, one for each line that is maintained: the security round of October 2026. This
# is the one place for that bound; deploy/README.md has the table of which Node is safe for what.
ARG LEAST_NODE="22.23.4 24.22.1 26.12.1"
# hadolint ignore=SC2016
RUN node -e 'const parts = (text) => text.split(".").map(Number); \
      const [major, minor, patch] = parts(process.versions.node); \
      const bounds = process.env.LEAST_NODE.split(" ").map(parts); \
      const bound = bounds.find(([line]) => line === major); \
      const isLater = bounds.every(([line]) => line < major); \
      if (isLater || (bound && (minor > bound[1] || (minor === bound[1] && patch >= bound[2])))) process.exit(0); \
      console.error(`Node ${process.versions.node} is not safe to serve with (${process.env.LEAST_NODE}): pull a newer base image`); \
      process.exit(1)'
WORKDIR /app

FROM base AS build
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts
COPY build.ts LICENSE ./
COPY src ./src
RUN node build.ts

FROM base
ENV NODE_ENV=production \
    NODE_COMPILE_CACHE=/app/.compile-cache \
    HOST=0.0.0.0 \
    PORT=8080
COPY --from=build /app/dist ./dist
COPY package.json LICENSE ./
COPY .env.example ./
RUN mkdir .compile-cache && chown 1000:1000 .compile-cache \
 && printf '#!/bin/sh\nexec node -- /app/dist/main.js "$@"\n' >/usr/local/bin/analytics-gateway \
 && chmod +x /usr/local/bin/analytics-gateway
# By number: Kubernetes refuses a name under runAsNonRoot. It is the base image's user "node".
USER 1000:1000
# One start and stop, and a health check, fill the compile cache, so that no start of a container has to compile. Node
# keeps one for each user and set of V8's flags, so these run as the user that serves, each with its own flags. On a Unix
# socket, for a build may share the network of its machine, where the port may be taken.
RUN UPSTREAM_BASE_URL=http://127.0.0.1:9/api UPSTREAM_API_KEY=only-to-warm-the-cache HOST=unix:/tmp/warm.sock LOG_LEVEL=silent \
    sh -c 'node --disable-sigusr1 --report-exclude-env --disable-proto=delete --max-semi-space-size=8 -- \
      /app/dist/main.js serve & sleep 3; analytics-gateway healthcheck; kill -TERM $! && wait $!'
# Behind the last RUN: an argument is a variable there, and beside a key the gateway refuses one of this name.
ARG NODE_IMAGE
ARG VERSION=development
ARG REVISION=unknown
ARG SOURCE=unknown
LABEL org.opencontainers.image.title="workspace-analytics-gateway" \
      org.opencontainers.image.description="Holds the Workspace Analytics API key, so that no caller has to" \
      org.opencontainers.image.licenses="MIT" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.base.name="${NODE_IMAGE}"
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=4s --start-period=5s CMD ["analytics-gateway", "healthcheck"]
# Node is process 1 and gets the signals. No inspector on SIGUSR1, no environment in reports. No way to an object's
# prototype by name: `delete`, for with `throw` Node's own parser throws at a field named __proto__, and the process ends.
# Core dumps hold the key as well: run with --ulimit core=0. The size of V8's semi-space bounds how much
# garbage it lets lie (docs/caching.md, "Memory"). Without "--" Node would take our --env-file for its own.
ENTRYPOINT ["node", "--disable-sigusr1", "--report-exclude-env", "--disable-proto=delete", "--max-semi-space-size=8", "--", "/app/dist/main.js"]
# What follows the image's name takes its place: `docker run IMAGE token list`.
CMD ["serve"]
