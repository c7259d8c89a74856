"""The module that pytest loads: it names the plugin, which is raftlog's own.

An entry point of raftlog itself would let pytest rewrite every assertion of the product.
"""

pytest_plugins = ["raftlog.embed.pytest_plugin"]
