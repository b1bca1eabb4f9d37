"""RabbitMQ's API for management over HTTP, below ``/api``: what its tools ask for."""
