"""Definitions as RabbitMQ exports them: users, policies, queues, exchanges, bindings."""
