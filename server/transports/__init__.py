"""The transports: stdio, Streamable HTTP and SSE. They do not depend on the application that they serve."""
