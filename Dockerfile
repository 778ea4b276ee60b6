# The server over HTTP, for one folder. docs/guide.md, "In a container", says how it is built and run.
FROM python:3.13-slim

LABEL io.modelcontextprotocol.server.name="io.github.OWNER/coretools-mcp"

COPY pyproject.toml constraints.txt README.md LICENSE coretools_mcp.py /src/
COPY server /src/server
COPY tools /src/tools
RUN pip install --no-cache-dir --constraint /src/constraints.txt '/src[full]' \
    && useradd --create-home --uid 1000 coretools \
    && install --directory --owner coretools /workspace

USER coretools
WORKDIR /workspace
EXPOSE 8808

# Isolated (-I): what stands in the workspace is not imported.
HEALTHCHECK CMD ["python", "-I", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8808/healthz', timeout=5)"]

# Other machines can reach this address, so it does not start without the variable CORETOOLS_MCP_TOKEN.
ENTRYPOINT ["coretools-mcp"]
CMD ["--transport", "http", "--host", "0.0.0.0", "--workspace", "/workspace"]
