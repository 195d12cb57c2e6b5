//! The chart and the overlays of kustomize say the same.

use serde_json::Value;

use crate::harness::permit::{Weight, acquire};

use super::manifest::{Manifest, text};
use super::sets::{one, rendered};
use super::tools::tools;

/// Labels by which Helm knows its own.
const HELMS: [&str; 3] = ["helm.sh/chart", "app.kubernetes.io/managed-by", "app.kubernetes.io/version"];
/// What the TLS overlays have beside: certificate authorities for a trial.
const TRIAL: [&str; 6] = [
    "Certificate troupemq-ca",
    "Issuer troupemq-ca",
    "Issuer troupemq-self-signed",
    "Certificate troupemq-peers-ca",
    "Issuer troupemq-peers-ca",
    "Issuer troupemq-peers-self-signed",
];

#[test]
fn the_chart_and_the_overlays_give_the_same_objects() {
    let Some(tools) = tools("chart and overlays") else { return };
    let _permit = acquire(Weight::Node);
    let all = rendered(&tools);
    for (set, folder) in [
        ("one node", "base"),
        ("defaults", "overlays/three-nodes"),
        ("cert-manager", "overlays/tls"),
        ("TLS between nodes", "overlays/cluster-tls"),
        ("monitoring", "overlays/monitoring"),
    ] {
        let (chart, overlay) = (comparable(one(all, set)), comparable(one(all, folder)));
        let names = |objects: &[(String, Value)]| objects.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        assert_eq!(names(&chart), names(&overlay), "{set} and {folder}");
        for ((name, by_chart), (_, by_overlay)) in chart.iter().zip(&overlay) {
            if by_chart == by_overlay {
                continue;
            }
            let pretty = |object| serde_json::to_string_pretty(object).expect("JSON");
            panic!("{name}, by the chart ({set}):\n{}\nby {folder}:\n{}", pretty(by_chart), pretty(by_overlay));
        }
    }
}

/// Names and objects in order, without what has to differ: Helm's labels, Secrets (Helm draws them, kustomize expects them), and the two ways by which a
/// changed configuration restarts pods.
fn comparable(manifest: &Manifest) -> Vec<(String, Value)> {
    let mut objects = Vec::new();
    for (name, object) in manifest.names().into_iter().zip(&manifest.0) {
        if object["kind"] == "Secret" || TRIAL.contains(&name.as_str()) {
            continue;
        }
        let mut object = object.clone();
        plain(&mut object);
        objects.push((format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"])), object));
    }
    objects.sort_by(|a, b| a.0.cmp(&b.0));
    objects
}

fn plain(value: &mut Value) {
    match value {
        Value::Object(map) => {
            if let Some(Value::Object(labels)) = map.get_mut("labels") {
                HELMS.iter().for_each(|label| _ = labels.remove(*label));
            }
            if let Some(Value::Object(annotations)) = map.get_mut("annotations") {
                annotations.remove("checksum/config");
            }
            map.values_mut().for_each(plain);
            // The base has no namespace, and its objects go where kubectl is told.
            map.remove("namespace");
            map.retain(|name, inside| name != "annotations" || inside.as_object().is_some_and(|inside| !inside.is_empty()));
        }
        Value::Array(items) => {
            items.iter_mut().for_each(plain);
            if items.iter().all(Value::is_object) {
                items.sort_by_key(in_order);
            }
        }
        Value::String(text) => {
            // kustomize puts a hash behind the name.
            if let Some((name, hash)) = text.rsplit_once('-')
                && name == "troupemq-config"
                && hash.len() == 10
            {
                *text = name.to_owned();
            }
        }
        _ => {}
    }
}

/// The same text for equal values, whatever the order of their keys.
fn in_order(value: &Value) -> String {
    match value {
        Value::Object(map) => {
            let mut entries: Vec<String> = map.iter().map(|(name, inside)| format!("{name}: {}", in_order(inside))).collect();
            entries.sort();
            entries.join(", ")
        }
        Value::Array(items) => items.iter().map(in_order).collect::<Vec<_>>().join("; "),
        other => other.to_string(),
    }
}
