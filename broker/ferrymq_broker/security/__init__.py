"""Who somebody is: passwords, certificates and tokens, and where they are kept.

Slow or outside work happens here, off the event loop. What comes of it is an `Identity`.
"""
