"""The console: pages for a browser, which ask the management API."""
