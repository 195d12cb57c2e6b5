//! Every series that an alert, a dashboard or the guide of monitoring names is served by a node that has just started.

use std::collections::BTreeSet;

use crate::harness::config::Config;
use crate::harness::node::Node;
use crate::harness::permit::{Weight, acquire};
use crate::harness::repository;

const FILES: [&str; 5] = [
    "config/monitoring/alerts.yml",
    "config/monitoring/dashboard.json",
    "docs/monitoring.md",
    "k8s/components/monitoring/prometheusrule.yaml",
    "k8s/helm/troupemq/templates/monitoring.yaml",
];

/// Names of series in a text.
fn series(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    // A name that ends so stands for several.
    words.filter(|word| (word.starts_with("com_hivemq_") || word.starts_with("troupemq_")) && !word.ends_with('_')).collect()
}

#[test]
fn every_series_that_is_watched_is_there_from_the_start() {
    let _permit = acquire(Weight::Node);
    let node = Node::ready(Config::default());
    let samples = node.metrics();
    let served: BTreeSet<&str> = samples.keys().map(|key| key.split('{').next().unwrap_or(key)).collect();
    for file in FILES {
        let text = std::fs::read_to_string(repository().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        let named = series(&text);
        assert!(named.len() > 5, "{file} names {named:?}");
        let missing: Vec<_> = named.difference(&served).collect();
        assert!(missing.is_empty(), "{file} names what is not served: {missing:?}");
    }
}

#[test]
fn the_dashboard_is_one_and_the_guide_has_every_alert() {
    let read = |file: &str| std::fs::read_to_string(repository().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    let dashboard: serde_json::Value = serde_json::from_str(&read("config/monitoring/dashboard.json")).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    assert!(panels.iter().all(|panel| panel["targets"].as_array().is_some_and(|targets| !targets.is_empty())), "{panels:?}");
    let (alerts, guide) = (read("config/monitoring/alerts.yml"), read("docs/monitoring.md"));
    let names: Vec<&str> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() > 5, "{names:?}");
    let undocumented: Vec<_> = names.iter().filter(|name| !guide.contains(&format!("| `{name}` |"))).collect();
    assert!(undocumented.is_empty(), "not in docs/monitoring.md: {undocumented:?}");
    let told: Vec<&str> = guide.lines().filter_map(|line| line.strip_prefix("| `TroupeMQ")?.split('`').next()).collect();
    assert_eq!(told.len(), names.len(), "the guide has alerts that are not there: {told:?}");
}
