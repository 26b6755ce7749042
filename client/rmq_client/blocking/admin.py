"""The blocking administration."""

from __future__ import annotations

from ..admin import admin as _admin
from .wrapping import BlockingObject, blocking, constructs


class Admin(BlockingObject[_admin.Admin]):
    """Administration of a cluster; see rmq_client.Admin."""

    @constructs(_admin.Admin)
    def __init__(self) -> None:
        """Take the same arguments."""

    # topics
    create_topic = blocking(_admin.Admin.create_topic)
    update_topic = blocking(_admin.Admin.update_topic)
    delete_topic = blocking(_admin.Admin.delete_topic)
    topics = blocking(_admin.Admin.topics)
    topic_settings = blocking(_admin.Admin.topic_settings)
    topic_route = blocking(_admin.Admin.topic_route)
    known_route = blocking(_admin.Admin.known_route)
    topic_stats = blocking(_admin.Admin.topic_stats)
    topic_groups = blocking(_admin.Admin.topic_groups)

    # static topics
    static_topic = blocking(_admin.Admin.static_topic)
    create_static_topic = blocking(_admin.Admin.create_static_topic)
    move_static_topic = blocking(_admin.Admin.move_static_topic)
    repair_static_topic = blocking(_admin.Admin.repair_static_topic)

    # groups
    create_group = blocking(_admin.Admin.create_group)
    update_group = blocking(_admin.Admin.update_group)
    delete_group = blocking(_admin.Admin.delete_group)
    groups = blocking(_admin.Admin.groups)
    group_settings = blocking(_admin.Admin.group_settings)
    group_topics = blocking(_admin.Admin.group_topics)
    set_consume_mode = blocking(_admin.Admin.set_consume_mode)
    set_group_readable = blocking(_admin.Admin.set_group_readable)

    # connected clients
    consumer_ids = blocking(_admin.Admin.consumer_ids)
    group_connections = blocking(_admin.Admin.group_connections)
    producer_connections = blocking(_admin.Admin.producer_connections)
    consumer_state = blocking(_admin.Admin.consumer_state)
    deliver_message = blocking(_admin.Admin.deliver_message)

    # progress and offsets
    lag = blocking(_admin.Admin.lag)
    lags = blocking(_admin.Admin.lags)
    consume_time_span = blocking(_admin.Admin.consume_time_span)
    max_offset = blocking(_admin.Admin.max_offset)
    min_offset = blocking(_admin.Admin.min_offset)
    search_offset = blocking(_admin.Admin.search_offset)
    earliest_time = blocking(_admin.Admin.earliest_time)
    committed_offset = blocking(_admin.Admin.committed_offset)
    commit_offset = blocking(_admin.Admin.commit_offset)
    reset_offsets = blocking(_admin.Admin.reset_offsets)
    reset_queue_offset = blocking(_admin.Admin.reset_queue_offset)
    skip_backlog = blocking(_admin.Admin.skip_backlog)
    clone_offsets = blocking(_admin.Admin.clone_offsets)

    # messages
    query_messages = blocking(_admin.Admin.query_messages)
    view_message = blocking(_admin.Admin.view_message)
    read_queue = blocking(_admin.Admin.read_queue)
    messages_between = blocking(_admin.Admin.messages_between)
    queue_entries = blocking(_admin.Admin.queue_entries)
    track_message = blocking(_admin.Admin.track_message)
    message_trace = blocking(_admin.Admin.message_trace)
    resume_transaction_check = blocking(_admin.Admin.resume_transaction_check)

    # dead letters
    dead_letter_counts = blocking(_admin.Admin.dead_letter_counts)
    dead_letters = blocking(_admin.Admin.dead_letters)
    resend_dead_letter = blocking(_admin.Admin.resend_dead_letter)

    # brokers and name servers
    cluster_info = blocking(_admin.Admin.cluster_info)
    broker_settings = blocking(_admin.Admin.broker_settings)
    update_broker_settings = blocking(_admin.Admin.update_broker_settings)
    broker_status = blocking(_admin.Admin.broker_status)
    broker_figures = blocking(_admin.Admin.broker_figures)
    broker_runtime = blocking(_admin.Admin.broker_runtime)
    replication_status = blocking(_admin.Admin.replication_status)
    controller_state = blocking(_admin.Admin.controller_state)
    in_sync_sets = blocking(_admin.Admin.in_sync_sets)
    broker_epochs = blocking(_admin.Admin.broker_epochs)
    elect_master = blocking(_admin.Admin.elect_master)
    forget_brokers = blocking(_admin.Admin.forget_brokers)
    controller_settings = blocking(_admin.Admin.controller_settings)
    update_controller_settings = blocking(_admin.Admin.update_controller_settings)
    cold_reads = blocking(_admin.Admin.cold_reads)
    set_cold_read_threshold = blocking(_admin.Admin.set_cold_read_threshold)
    remove_cold_read_threshold = blocking(_admin.Admin.remove_cold_read_threshold)
    set_read_ahead = blocking(_admin.Admin.set_read_ahead)
    clean_brokers = blocking(_admin.Admin.clean_brokers)
    name_server_settings = blocking(_admin.Admin.name_server_settings)
    update_name_server_settings = blocking(_admin.Admin.update_name_server_settings)
    key_values = blocking(_admin.Admin.key_values)
    put_key_value = blocking(_admin.Admin.put_key_value)
    delete_key_value = blocking(_admin.Admin.delete_key_value)
    wipe_write_permission = blocking(_admin.Admin.wipe_write_permission)
    add_write_permission = blocking(_admin.Admin.add_write_permission)

    # access control
    create_user = blocking(_admin.Admin.create_user)
    update_user = blocking(_admin.Admin.update_user)
    delete_user = blocking(_admin.Admin.delete_user)
    copy_users = blocking(_admin.Admin.copy_users)
    user = blocking(_admin.Admin.user)
    users = blocking(_admin.Admin.users)
    create_rules = blocking(_admin.Admin.create_rules)
    update_rules = blocking(_admin.Admin.update_rules)
    delete_rules = blocking(_admin.Admin.delete_rules)
    copy_rules = blocking(_admin.Admin.copy_rules)
    user_rules = blocking(_admin.Admin.user_rules)
    rules = blocking(_admin.Admin.rules)
