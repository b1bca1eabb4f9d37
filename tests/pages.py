"""Which tests hold the promises of which page: `pytest --page broker/queues` runs those of one.

Folders stand for all modules in them. `tests/conftest.py` gives their tests the marker `page` by
this table; a test elsewhere that holds a promise says `@pytest.mark.page("broker/queues")` itself.
"""

from __future__ import annotations

from typing import Final

PAGES: Final[dict[str, tuple[str, ...]]] = {
    "broker/README": (
        "broker/test_examples.py",
        "broker/test_cli.py",
    ),
    "broker/access": (
        "broker/access/",
        "wire/test_rules.py",
        "wire/test_permissions.py",
        "broker/management/test_authorisation.py",
    ),
    "broker/addresses": (
        "broker/config/test_places.py",
        "broker/config/test_patterns.py",
        "broker/config/test_declared_nodes.py",
        "broker/management/test_aliases.py",
    ),
    "broker/admin": (
        "broker/management/test_admin.py",
        "broker/management/test_admin_holds.py",
        "broker/management/test_admin_users.py",
    ),
    "broker/audit": ("broker/audit/",),
    "broker/browsing": (
        "broker/queues/test_browsing.py",
        "broker/test_browse.py",
    ),
    "broker/capture": (
        "broker/capture/",
        "broker/streams/test_holds.py",
        "broker/streams/test_holds_stored.py",
    ),
    "broker/coming-from": (
        "broker/test_examples.py",
        "wire/test_rules.py",
        "interop/test_nodes_links.py",
        "interop/test_azure.py",
    ),
    "broker/command-line": (
        "broker/test_cli.py",
        "broker/test_rendering.py",
        "broker/cli_store/test_commands.py",
    ),
    "broker/configuration": (
        "broker/config/",
        "broker/test_examples.py",
    ),
    "broker/connection-limits": (
        "broker/limits/",
        "broker/connections/test_weighing.py",
    ),
    "broker/connections": (
        "broker/test_connections.py",
        "wire/test_connections.py",
        "wire/test_idle.py",
        "wire/test_login.py",
        "wire/test_mechanisms.py",
    ),
    "broker/consumers": (
        "broker/queues/test_consumer_priority.py",
        "broker/queues/test_exclusive.py",
        "broker/queues/test_single_active.py",
        "interop/test_nodes_consumers.py",
    ),
    "broker/dead-letters": (
        "broker/lifecycle/test_dead_letters.py",
        "broker/lifecycle/test_returning.py",
        "broker/slices/test_letters.py",
        "wire/test_returning.py",
    ),
    "broker/duplicates": ("broker/lifecycle/test_duplicates.py",),
    "broker/durability": (
        "broker/store/",
        "broker/recovery/",
        "broker/test_backups.py",
        "broker/test_stored_process.py",
        "broker/test_stored_server.py",
        "broker/cli_store/",
    ),
    "broker/dynamic-nodes": (
        "broker/connections/test_lifetimes.py",
        "broker/access/test_dynamic_nodes.py",
        "broker/connections/test_kinds.py",
        "wire/test_generated_names.py",
    ),
    "broker/exactly-once": (
        "broker/termini/test_exactly_once.py",
        "wire/test_durable_targets.py",
        "wire/test_remembered_links.py",
        "wire/test_resuming_sources.py",
        "wire/test_resuming_targets.py",
    ),
    "broker/exchanges": (
        "broker/exchanges/",
        "interop/test_nodes_exchanges.py",
    ),
    "broker/expiry": (
        "broker/lifecycle/test_expiry.py",
        "wire/test_expiry.py",
        "interop/test_nodes_times.py",
    ),
    "broker/filters": (
        "broker/filters/",
        "interop/test_proton_filters.py",
    ),
    "broker/flow-control": (
        "broker/test_flow_control.py",
        "broker/connections/test_alarms.py",
        "broker/connections/test_credit_budget.py",
        "broker/connections/test_credit_sharing.py",
        "wire/test_bounded_credit.py",
        "wire/test_drains.py",
        "wire/test_flow_state.py",
    ),
    "broker/groups": ("broker/queues/test_groups.py",),
    "broker/last-value": ("broker/lifecycle/test_last_value.py",),
    "broker/limits": (
        "broker/lifecycle/test_limits.py",
        "interop/test_nodes_limits.py",
    ),
    "broker/management": ("broker/management/",),
    "broker/monitoring": ("broker/monitoring/",),
    "broker/open-network": (
        "broker/security/test_gate.py",
        "broker/limits/",
        "broker/security/test_throttle.py",
    ),
    "broker/outcomes": (
        "broker/test_outcomes.py",
        "broker/lifecycle/test_returning.py",
        "wire/test_default_outcomes.py",
        "wire/test_undeliverable_here.py",
    ),
    "broker/paging": ("broker/paging/",),
    "broker/policies": (
        "broker/config/test_policies.py",
        "broker/config/test_patterns.py",
    ),
    "broker/priorities": ("broker/queues/test_priority.py",),
    "broker/queues": (
        "broker/queues/",
        "broker/test_queue_order.py",
        "broker/test_competing_consumers.py",
        "broker/lifecycle/test_auto_delete.py",
        "broker/lifecycle/test_declared_nodes_stay.py",
    ),
    "broker/running": (
        "broker/test_process.py",
        "broker/test_cli.py",
        "broker/monitoring/test_shutdown.py",
        "broker/monitoring/test_starting.py",
        "broker/test_server.py",
    ),
    "broker/scheduling": (
        "broker/lifecycle/test_scheduling.py",
        "interop/test_nodes_times.py",
    ),
    "broker/streams": (
        "broker/streams/",
        "interop/test_nodes_streams.py",
    ),
    "broker/termini": (
        "broker/termini/",
        "broker/test_termini.py",
        "interop/test_proton_termini.py",
    ),
    "broker/tls": (
        "broker/tls/",
        "interop/test_tls_proton.py",
        "interop/test_tls_rhea.py",
    ),
    "broker/tokens": ("broker/tokens/",),
    "broker/topics": (
        "broker/topics/",
        "interop/test_nodes_topics.py",
        "interop/test_proton_topics.py",
    ),
    "broker/transactions": (
        "broker/transactions/",
        "wire/test_transactions.py",
        "wire/test_transaction_outcomes.py",
        "interop/test_transactions_proton.py",
    ),
    "broker/users": (
        "broker/security/test_users_file.py",
        "broker/security/test_user_commands.py",
        "broker/security/test_stored_passwords.py",
        "broker/security/test_users_of_a_running_broker.py",
        "broker/security/test_verified.py",
    ),
    "broker/virtual-hosts": (
        "broker/connections/test_virtual_hosts.py",
        "broker/management/test_escalation_tenants.py",
    ),
    "broker/websocket": (
        "broker/websocket/",
        "interop/test_websocket_rhea.py",
    ),
    "client/arrow": (
        "arrow/test_decode.py",
        "arrow/test_encode.py",
        "arrow/test_schema.py",
    ),
    "client/asyncio": (
        "client/test_sending.py",
        "client/test_receiving.py",
        "client/test_connection.py",
        "client/test_cancellation.py",
        "client/test_cancelled_steps.py",
        "client/test_given_up_links.py",
        "client/test_nothing_hangs.py",
        "client/test_terms.py",
        "client/test_granted_terms.py",
        "client/test_with_broker.py",
        "client/test_dropped.py",
        "client/test_pair.py",
    ),
    "client/blocking": (
        "client/test_blocking.py",
        "client/test_interruptions.py",
        "client/test_nothing_hangs.py",
        "client/test_dropped.py",
    ),
    "client/chunks": (
        "client/test_chunk_readers.py",
        "client/test_chunk_format.py",
    ),
    "client/connections": (
        "client/test_url.py",
        "client/test_connecting.py",
        "client/test_reconnect.py",
        "client/test_nothing_hangs.py",
        "client/test_tokens.py",
        "client/test_transient_logins.py",
        "client/test_public_api.py",
        "broker/websocket/test_clients.py",
    ),
    "client/exactly-once": (
        "client/test_exactly_once.py",
        "client/test_exactly_once_broker.py",
        "client/test_exactly_once_restart.py",
        "client/test_example_once.py",
        "client/test_written_down.py",
        "client/test_resuming_senders.py",
        "client/test_resuming_receivers.py",
        "client/test_resumed_states.py",
        "client/test_partial_maps.py",
        "client/test_fences.py",
    ),
    "client/management": (
        "client/test_management.py",
        "client/test_blocking_parity.py",
    ),
    "client/messages": (
        "client/test_message.py",
        "client/test_bad_values.py",
        "client/test_large_values.py",
        "client/test_message_proton.py",
        "client/test_send_encoded.py",
    ),
    "client/request-reply": ("client/test_requests.py",),
    "client/transactions": (
        "client/test_transactions.py",
        "client/test_discharges.py",
        "client/test_coordinators.py",
        "client/test_fences.py",
        "client/test_overlooked.py",
        "wire/test_client_transactions.py",
    ),
    "pipeline/README": (
        "spark/test_readme.py",
        "spark/test_source_schema.py",
        "spark/test_round_trip.py",
    ),
    "pipeline/archive": (
        "spark/test_pipelines_archive.py",
        "spark/test_pipelines_cli.py",
    ),
    "pipeline/capture": (
        "spark/test_capture_reading.py",
        "spark/test_capture_sink.py",
        "capture/test_coverage.py",
        "capture/test_files.py",
        "capture/test_names.py",
    ),
    "pipeline/cluster": ("spark/test_cluster.py",),
    "pipeline/foreign": ("spark/test_foreign_event_hubs.py",),
    "pipeline/metrics": (
        "spark/test_pipelines_metrics.py",
        "spark/test_pipelines_cli.py",
    ),
    "pipeline/options": (
        "spark/test_source_options.py",
        "spark/test_source_credentials.py",
    ),
    "pipeline/queues": (
        "spark/test_queue_browse.py",
        "spark/test_queue_browse_proton.py",
    ),
    "pipeline/replay": (
        "spark/test_pipelines_archive.py",
        "spark/test_pipelines_cli.py",
    ),
    "pipeline/sink": (
        "spark/test_sink_batch.py",
        "spark/test_sink_streaming.py",
        "spark/test_sink_fences.py",
        "spark/test_sink_outages.py",
        "spark/test_sink_retrying.py",
        "arrow/test_encode.py",
    ),
    "pipeline/source": (
        "spark/test_source_batch.py",
        "spark/test_source_stream.py",
        "spark/test_source_schema.py",
        "spark/test_source_loss.py",
        "spark/test_source_lag.py",
        "spark/test_source_partitions.py",
        "spark/test_source_planning.py",
        "spark/test_source_deciding.py",
        "spark/test_source_filters.py",
    ),
    "pipeline/traffic": ("spark/test_traffic.py",),
    "pipeline/triage": (
        "spark/test_pipelines_triage.py",
        "spark/test_pipelines_cli.py",
    ),
}
"""Pages below `docs/`, and the modules and folders below `tests/`."""
