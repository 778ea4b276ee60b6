# The server over HTTP, for one folder. docs/network.md, "In a container", says how to build and run it, deploy/README.md how
# to run several. The image of the last stage has only Python; `--target upstreams` adds node and uv for upstream servers.
FROM python:3.13-slim AS build
COPY pyproject.toml constraints.txt README.md LICENSE coretools_mcp.py /src/
COPY server /src/server
COPY tools /src/tools
RUN python -m venv /opt/coretools-mcp \
    && /opt/coretools-mcp/bin/pip install --no-cache-dir --constraint /src/constraints.txt '/src[full,valkey]'

FROM python:3.13-slim AS base
LABEL io.modelcontextprotocol.server.name="io.github.OWNER/coretools-mcp"
RUN useradd --create-home --uid 1000 coretools \
    && install --directory --owner coretools /workspace \
    && install --directory --owner coretools --mode 0700 /state
COPY --from=build /opt/coretools-mcp /opt/coretools-mcp
# Outside of /workspace, the server writes only to /state, a volume, and /tmp: the rest may be read-only.
ENV PATH=/opt/coretools-mcp/bin:/usr/local/bin:/usr/bin:/bin \
    XDG_STATE_HOME=/state \
    XDG_CACHE_HOME=/tmp/cache
VOLUME /state
WORKDIR /workspace
EXPOSE 8808
# Isolated (-I), so that nothing is imported from the workspace.
HEALTHCHECK CMD ["python", "-I", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8808/healthz', timeout=5)"]
# Other machines can reach this address, so it does not start without a token (the variable CORETOOLS_MCP_TOKEN).
ENTRYPOINT ["coretools-mcp"]
CMD ["--transport", "http", "--host", "0.0.0.0", "--workspace", "/workspace"]

FROM node:24-slim AS node

FROM base AS upstreams
COPY --from=node /usr/local/bin/node /usr/local/bin/node
COPY --from=node /usr/local/lib/node_modules/npm /usr/local/lib/node_modules/npm
RUN ln -s ../lib/node_modules/npm/bin/npm-cli.js /usr/local/bin/npm \
    && ln -s ../lib/node_modules/npm/bin/npx-cli.js /usr/local/bin/npx \
    && pip install --no-cache-dir 'uv==0.9.*'
ENV npm_config_cache=/tmp/cache/npm
USER coretools

FROM base AS server
USER coretools
