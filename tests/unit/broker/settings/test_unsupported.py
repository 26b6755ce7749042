"""Values of Apache's settings that the broker refuses, at start and while it runs."""

from __future__ import annotations

import pytest

from rmq_broker.settings.broker import BrokerSettings, known_keys
from rmq_broker.settings.unsupported import UNSUPPORTED
from rmq_remoting.daemon.configuration import Override, Problem, ProblemKind, SettingsError, load
from rmq_remoting.daemon.settings import describe_settings
from tests.support.rows import each_row

_REFUSED = [
    ("aclEnable", "true"),
    ("enableDLegerCommitLog", "true"),
    ("duplicationEnable", "true"),
    ("storePathCommitLog", "/disk1/log,/disk2/log"),
    ("readOnlyCommitLogStorePaths", "/disk3/log"),
    ("storeType", "defaultRocksDB"),
    ("messageStorePlugIn", "org.apache.rocketmq.tieredstore.TieredMessageStore"),
    ("enableLmq", "true"),
    ("enableMultiDispatch", "true"),
    ("metricsExporterType", "OTLP_GRPC"),
    ("metricsExporterType", "LOG"),
]
_ACCEPTED = [
    ("authenticationEnabled", "false"),
    ("brokerRole", "ASYNC_MASTER"),
    ("brokerRole", "SYNC_MASTER"),
    ("totalReplicas", "1"),
    ("inSyncReplicas", "1"),
    ("storePathCommitLog", "/disk1/log"),
    ("readOnlyCommitLogStorePaths", ""),
    ("storeType", "default"),
    ("messageStorePlugIn", ""),
    ("metricsExporterType", "DISABLE"),
    # Replaces nothing as long as no topic asks for compaction, and the broker refuses such topics.
    ("enableCompaction", "true"),
]


def _refusals(given: list[tuple[str, str]]) -> tuple[Problem, ...]:
    with pytest.raises(SettingsError) as caught:
        load(BrokerSettings, None, [Override(*pair) for pair in given], known_keys)
    return caught.value.problems


def test_every_rule_is_tried_here() -> None:
    assert {rule.key for rule in UNSUPPORTED} == {key for key, _ in _REFUSED}


@each_row(("key", "value"), _REFUSED)
def test_the_broker_does_not_start_with_it(key: str, value: str) -> None:
    (problem,) = _refusals([(key, value)])
    assert (problem.kind, problem.key, problem.value) == (ProblemKind.UNSUPPORTED, key, value)
    assert str(problem).startswith(f"--set: {key}={value}: ")
    assert "is not supported by this version; " in problem.reason


@each_row(("key", "value"), _REFUSED)
def test_a_running_broker_refuses_it_and_changes_nothing(key: str, value: str) -> None:
    configuration = load(BrokerSettings, None, (), known_keys)
    before = configuration.to_properties()
    with pytest.raises(SettingsError) as caught:
        configuration.update({"traceOn": "false", key: value})
    assert [problem.kind for problem in caught.value.problems] == [ProblemKind.UNSUPPORTED]
    assert configuration.to_properties() == before


@each_row(("key", "value"), _ACCEPTED)
def test_values_that_ask_for_nothing_are_accepted(key: str, value: str) -> None:
    load(BrokerSettings, None, [Override(key, value)], known_keys)


def test_no_default_is_refused() -> None:
    defaults = {info.key: info.default for info in describe_settings(BrokerSettings)}
    for rule in UNSUPPORTED:
        default = defaults.get(rule.key, known_keys()[rule.key].default)
        assert not rule.values.match(default), rule.key


def test_all_refused_settings_are_named_at_once() -> None:
    problems = _refusals([("aclEnable", "true"), ("storeType", "other"), ("maxMessageSize", "big")])
    assert {problem.key for problem in problems} == {"aclEnable", "storeType", "maxMessageSize"}
