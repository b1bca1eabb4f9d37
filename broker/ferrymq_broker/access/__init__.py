"""Who may do what where: identities, rules, and what one connection may do by them.

Nothing here knows links or sockets. Whoever lets a client do something asks its `Access` first.
"""
