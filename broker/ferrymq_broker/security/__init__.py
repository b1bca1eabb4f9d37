"""Authentication: passwords, certificates and tokens, and their files.

Slow work and requests to other servers happen here, outside the event loop. The result is a
`UserIdentity`.
"""
