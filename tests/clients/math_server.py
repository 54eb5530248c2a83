"""An MCP server with one tool, for Codex to start."""

from mcp.server.mcpserver import MCPServer

server = MCPServer("math")


@server.tool()
def add(a: int, b: int) -> str:
    """Add two numbers."""
    return f"the sum is {a + b}"


if __name__ == "__main__":
    server.run()
