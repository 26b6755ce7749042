"""Prometheus' configuration and alert rules, checked by promtool; each alert is made to fire."""

from __future__ import annotations

from pathlib import Path

from rmq_broker.settings.broker import BrokerSettings
from tests.deploy.tools import DEPLOY, judged, yaml_of
from tests.support.alert_rules import Series, ThresholdRule, minutes
from tests.support.requirements import tool_or_skip

PROMETHEUS = DEPLOY / "prometheus"


def _promtool() -> Path:
    return tool_or_skip("promtool", "Debian package prometheus")


def test_the_configuration_is_valid() -> None:
    judged([_promtool(), "check", "config", PROMETHEUS / "prometheus.yml"])


def test_the_rules_are_valid() -> None:
    judged([_promtool(), "check", "rules", "--lint-fatal", PROMETHEUS / "rules.yml"])


def test_alerts_fire_as_expected() -> None:
    judged([_promtool(), "test", "rules", PROMETHEUS / "rules_test.yml"])


def test_threshold_alerts_fire_as_expected_without_promtool() -> None:
    groups = yaml_of(PROMETHEUS / "rules.yml")["groups"]
    rules = {rule["alert"]: ThresholdRule.of(rule) for group in groups for rule in group["rules"]}
    judged_here = set()
    for test in yaml_of(PROMETHEUS / "rules_test.yml")["tests"]:
        assert test["interval"] == "1m"
        series = [Series.of(item) for item in test["input_series"]]
        for case in test["alert_rule_test"]:
            name, rule = case["alertname"], rules[case["alertname"]]
            if rule is None:
                continue
            expected = {
                frozenset(alert["exp_labels"].items()) - {("severity", alert["exp_labels"]["severity"])}
                for alert in case.get("exp_alerts", ())
            }
            assert rule.alerts_at(int(minutes(case["eval_time"])), series) == expected, case
            judged_here.add(name)
    assert {"RmqDown", "RmqWritesRefused", "RmqGroupDisagrees", "RmqDelayedMessagesLate"} <= judged_here


def test_every_alert_is_tested() -> None:
    groups = yaml_of(PROMETHEUS / "rules.yml")["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    tests = yaml_of(PROMETHEUS / "rules_test.yml")["tests"]
    made_to_come = {
        case["alertname"] for test in tests for case in test["alert_rule_test"] if case.get("exp_alerts")
    }
    assert made_to_come == alerts


def test_every_alert_has_a_severity_and_a_text() -> None:
    for group in yaml_of(PROMETHEUS / "rules.yml")["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in {"critical", "warning"}, rule["alert"]
            assert rule["annotations"]["summary"], rule["alert"]


def test_it_scrapes_the_services_of_the_compose_files() -> None:
    scraped = {
        job["job_name"]: {target for static in job["static_configs"] for target in static["targets"]}
        for job in yaml_of(PROMETHEUS / "prometheus.yml")["scrape_configs"]
    }
    streams = scraped.pop("spark-streams")
    daemons = yaml_of(DEPLOY / "compose.yaml")["services"]
    port = BrokerSettings().metrics_port
    assert set().union(*scraped.values()) == {f"{name}:{port}" for name in daemons}
    more = yaml_of(DEPLOY / "compose.full.yaml")["services"]
    assert {target.partition(":")[0] for target in streams} <= set(more)
    assert "./prometheus:/etc/prometheus:ro" in more["prometheus"]["volumes"]
