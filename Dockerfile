# syntax=docker/dockerfile:1
# The image holds Node and the built gateway, libraries included. Nothing of the build stays in it.

FROM node:26-slim AS base
# An image older than the last security round must not be built on: Node 26.12.1 of October 2026.
RUN node -e "const [a,b,c]=process.versions.node.split('.').map(Number); if (a*1e6+b*1e3+c < 26012001) { console.error('this Node is not patched: pull a newer base image'); process.exit(1) }"
WORKDIR /app

FROM base AS build
COPY package.json package-lock.json ./
RUN npm ci --ignore-scripts
COPY build.ts ./
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
RUN mkdir .compile-cache && chown node .compile-cache
USER node
# One start and stop fills the compile cache, so that no start of a container has to compile. Node keeps one for each
# user and set of flags, so this runs as the one that serves, with its flags; what has none is the health check.
RUN UPSTREAM_BASE_URL=http://127.0.0.1:9/api UPSTREAM_API_KEY=only-to-warm-the-cache HOST=127.0.0.1 LOG_LEVEL=silent \
    sh -c 'node --disable-sigusr1 --report-exclude-env --disable-proto=delete --max-semi-space-size=8 \
      --heap-growing-percent=25 dist/main.js serve & sleep 3; node dist/main.js healthcheck; kill -TERM $! && wait $!'
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=4s --start-period=5s CMD ["node", "/app/dist/main.js", "healthcheck"]
# Node is process 1 and gets the signals. No inspector on SIGUSR1, no environment in reports. No way to an object's
# prototype by name: `delete`, for with `throw` Node's own parser throws at a field named __proto__, and the process ends.
# Core dumps hold the key as well: run with --ulimit core=0. The last two flags bound how much
# garbage V8 lets lie (docs/caching.md, "Memory").
CMD ["node", "--disable-sigusr1", "--report-exclude-env", "--disable-proto=delete", "--max-semi-space-size=8", "--heap-growing-percent=25", "dist/main.js", "serve"]
