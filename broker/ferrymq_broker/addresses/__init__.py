"""From addresses to nodes: virtual hosts, aliases, declared nodes, templates."""
