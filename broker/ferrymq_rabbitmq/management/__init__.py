"""The node ``/management``: requests with verbs and paths like those of HTTP."""
