"""Authorisation: identities, rules, tokens, and the rights of one connection.

Nothing here knows links or sockets. Code that does something for a client asks the client's
`ConnectionAccess` first.
"""
