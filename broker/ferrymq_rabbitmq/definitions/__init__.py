"""Definitions as RabbitMQ exports them: users, permissions, policies, queues, exchanges, bindings."""
