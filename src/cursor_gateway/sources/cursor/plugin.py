"""Write the plugin that gives one run of the CLI the gateway's own tool for questions.

The CLI finds MCP servers in the workspace's `.cursor`, which is not the gateway's, in the user's home folder, and in
plugins. Only those of a plugin need no approval: `--approve-mcps` would approve every server that a workspace brings.
Calls need a rule all the same. The CLI calls the server `plugin-PLUGIN-SERVER`.
"""

from cursor_gateway.sources.cursor.ask_user import UserTool
from cursor_gateway.sources.cursor.configuration import encode_settings, unusable
from cursor_gateway.sources.private_files import private_folder, write_private

_NAME = "cursor-gateway"


def write_plugin(path: str, data: str, tool: UserTool, url: str) -> list[str]:
    """Returns the rules that allow its tool. `data` is the gateway's data directory, which contains the path.

    Raises as `copy_configuration`.
    """
    try:
        with private_folder(data, f"{path}/.cursor-plugin") as folder:
            write_private(folder, "plugin.json", encode_settings({"name": _NAME, "version": "1.0.0"}))
        with private_folder(data, path) as folder:
            write_private(folder, "mcp.json", encode_settings({"mcpServers": {tool.server: {"url": url}}}))
    except OSError as error:
        raise unusable(error) from error
    return [f"Mcp(plugin-{_NAME}-{tool.server}:{tool.name})"]
