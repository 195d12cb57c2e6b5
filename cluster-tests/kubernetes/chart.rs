//! The chart by itself: its values, what it refuses, and what it does to what is installed already.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::permit::{Weight, acquire};
use crate::harness::repository;

use super::manifest::{Manifest, text};
use super::pod::contents;
use super::sets::SETS;
use super::tools::{NAMESPACE, RELEASE, Tools, chart, succeeded, tools};

#[test]
fn helm_finds_nothing_to_say_about_the_chart() {
    let Some(tools) = tools("helm lint") else { return };
    let _permit = acquire(Weight::Node);
    for set in SETS {
        let told = succeeded(set.name, tools.lint(set.values));
        assert!(told.contains("1 chart(s) linted, 0 chart(s) failed"), "{}: {told}", set.name);
        assert!(!told.contains("[WARNING]") && !told.contains("[ERROR]"), "{}: {told}", set.name);
    }
}

/// Each with a word of the message: the place and what is allowed, or what to do.
#[test]
fn values_that_cannot_work_are_refused_with_a_message_that_helps() {
    let Some(tools) = tools("refused values") else { return };
    let _permit = acquire(Weight::Node);
    let cases = [
        ("replica: 3", "additional properties 'replica' not allowed"),
        ("tls: {enable: true}", "at '/tls': additional properties 'enable' not allowed"),
        ("image: {repository: x, tags: y}", "at '/image': additional properties 'tags' not allowed"),
        ("replicas: 0", "at '/replicas': minimum: got 0, want 1"),
        ("replicas: three", "at '/replicas': got string, want integer"),
        ("listeners: {mqtt: {port: 70000}}", "at '/listeners/mqtt/port': maximum: got 70,000, want 65,535"),
        ("listeners: {websocket: {path: mqtt}}", "at '/listeners/websocket/path'"),
        ("cluster: {secret: short}", "at '/cluster/secret'"),
        ("cluster: {secret: 'sixteen-characters<or-more'}", "at '/cluster/secret'"),
        ("tls: {clientAuthentication: MAYBE}", "'NONE', 'OPTIONAL', 'REQUIRED'"),
        ("persistence: {size: big}", "at '/persistence/size'"),
        ("persistence: {accessModes: [ReadWriteMany]}", "'ReadWriteOnce', 'ReadWriteOncePod'"),
        ("shutdown: {clientsPerSecond: 0}", "at '/shutdown/clientsPerSecond': minimum: got 0, want 1"),
        ("bindAddress: 127.0.0.1", "'0.0.0.0', '::'"),
        ("loadBalancer: {sourceRanges: [192.0.2.1]}", "at '/loadBalancer/sourceRanges/0'"),
        ("monitoring: {serviceMonitor: {interval: often}}", "at '/monitoring/serviceMonitor/interval'"),
        ("monitoring: {serviceMonitor: {port: health}}", "at '/monitoring/serviceMonitor/port'"),
        ("prometheus: {path: metrics}", "at '/prometheus/path'"),
        ("prometheus: {port: 8889}", "port 8889 is taken twice, by health.port and prometheus.port"),
        (
            "monitoring: {serviceMonitor: {enabled: true}}\nprometheus: {enabled: false}",
            "set that, or monitoring.serviceMonitor.port=http",
        ),
        ("fullnameOverride: Broker", "at '/fullnameOverride'"),
        ("authentication: {user: 'a<b'}", "at '/authentication/user'"),
        ("declaredSharedSubscriptions: [{shareName: a/b, topicFilter: x}]", "at '/declaredSharedSubscriptions/0/shareName'"),
        ("tls: {enabled: true}", "name a Secret with tls.crt and tls.key in tls.secretName, or set tls.certManager.enabled"),
        ("tls: {enabled: true, certManager: {enabled: true}}", "tls.certManager.issuerRef.name is empty"),
        ("tls: {certManager: {enabled: true, issuerRef: {name: x}}}", "has no effect without tls.enabled"),
        ("tls: {clientAuthentication: REQUIRED}", "tls.clientAuthentication has no effect without tls.enabled"),
        ("podDisruptionBudget: {maxUnavailable: 2}", "allowed with 3 replicas: 1 at most"),
        ("replicas: 1\npodDisruptionBudget: {maxUnavailable: 2}", "allowed with 1 replicas: 1 at most"),
        ("cluster: {tls: {enabled: true}}", "name a Secret with tls.crt, tls.key and ca.crt in cluster.tls.secretName"),
        ("cluster: {tls: {enabled: true, certManager: {enabled: true}}}", "cluster.tls.certManager.issuerRef.name is empty"),
        ("cluster: {tls: {optional: true}}", "have no effect without cluster.tls.enabled"),
        ("cluster: {tls: {enabled: true, verify: false}}", "at '/cluster/tls': additional properties 'verify' not allowed"),
        ("authentication: {clientCertificate: {enabled: true}}", "needs tls.enabled, and tls.clientAuthentication"),
        ("authentication: {anonymous: true, existingSecret: x}", "exclude each other: empty one of them"),
        (
            "authentication: {anonymous: true, clientCertificate: {enabled: true}}\ntls: {enabled: true, secretName: x, clientAuthentication: REQUIRED}",
            "exclude each other: unset one of them",
        ),
        ("cluster: {secret: sixteen-characters-or-more, existingSecret: x}", "exclude each other: empty one of them"),
        ("cluster: {expectedNodes: 2}", "cluster.expectedNodes is 2 and replicas 3"),
        ("cluster: {expectedNodes: 6}", "cluster.expectedNodes is 6 and replicas 3"),
        ("http: {port: 1883}", "port 1883 is taken twice, by mqtt and http.port"),
        ("listeners: {mqtt: {enabled: false}, websocket: {enabled: false}}", "no listener is left for clients"),
        ("shutdown: {clientsPerNode: 1000000, clientsPerSecond: 7}", "takes 142864 seconds; allowed: 86400"),
    ];
    for (values, message) in cases {
        let refused = tools.template(values, &[]);
        assert!(refused.code == Some(1) && refused.stderr.contains(message), "{values}: {refused:?}");
    }
}

/// Every value has its type in the schema, and the schema names no value that there is not.
#[test]
fn values_and_their_schema_name_the_same() {
    let Some(tools) = tools("values and schema") else { return };
    let _permit = acquire(Weight::Node);
    let mut command = tools.command("python");
    command.args(["-c", "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))"]);
    command.arg(chart().join("values.yaml"));
    let values: Value =
        serde_json::from_str(&succeeded("values.yaml", crate::harness::script::run(&mut command, SOON))).expect("JSON");
    let schema: Value =
        serde_json::from_str(&fs::read_to_string(chart().join("values.schema.json")).expect("a file")).expect("JSON");
    let (mut of_values, mut of_schema) = (BTreeSet::new(), BTreeSet::new());
    paths_of_values(&values, &schema, "", &mut of_values);
    paths_of_schema(&schema, "", &mut of_schema);
    // What Helm itself puts there for charts that have this one inside; probes may have a delay.
    for extra in ["/global", "/probes/liveness/initialDelaySeconds", "/probes/readiness/initialDelaySeconds"] {
        assert!(of_schema.remove(extra), "{extra}");
    }
    assert_eq!(of_values, of_schema);
}

fn paths_of_values(value: &Value, schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let known = schema["properties"].as_object();
    let (Some(map), Some(known)) = (value.as_object(), known) else {
        found.insert(path.to_owned());
        return;
    };
    // Maps whose keys are the user's are no further looked into.
    for (name, inside) in map {
        paths_of_values(inside, known.get(name).unwrap_or(&Value::Null), &format!("{path}/{name}"), found);
    }
}

fn paths_of_schema(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let Some(properties) = schema["properties"].as_object() else {
        found.insert(path.to_owned());
        return;
    };
    assert_eq!(schema["additionalProperties"], false, "{path} takes unknown names");
    properties.iter().for_each(|(name, inside)| paths_of_schema(inside, &format!("{path}/{name}"), found));
}

#[test]
fn every_value_has_a_comment() {
    let values = fs::read_to_string(chart().join("values.yaml")).expect("a file");
    let mut before = "";
    // Below these, names are Kubernetes' own.
    let mut foreign = false;
    let mut seen = 0;
    for line in values.lines() {
        let name = line.trim_start().split(':').next().unwrap_or_default();
        if !line.starts_with(' ') {
            foreign = ["resources", "accessModes"].contains(&name);
        }
        let is_value = line.contains(':') && !line.trim_start().starts_with(['#', '-']) && !line.trim_end().ends_with(':');
        if is_value && !foreign {
            assert!(before.trim_start().starts_with('#'), "no comment above {line:?}");
            seen += 1;
        }
        before = line;
    }
    assert!(seen > 70, "{seen}");
}

/// Runs `api.py` with these objects; ends with the guard.
struct Api {
    child: Child,
    port: u16,
}

impl Api {
    fn start(tools: &Tools, objects: &Value) -> Self {
        let file = tools.path().join("installed.json");
        fs::write(&file, objects.to_string()).expect("a file");
        let mut command = tools.command("python");
        command.arg("-B").arg(repository().join("cluster-tests/kubernetes/api.py")).arg(file);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("its port");
        let port = line.trim().parse().expect("a port");
        Self { child, port }
    }

    /// What an upgrade would apply.
    fn upgrade(&self, tools: &Tools, values: &str) -> crate::harness::script::Finished {
        let server = format!("http://127.0.0.1:{}", self.port);
        tools.template(values, &["--dry-run=server", "--disable-openapi-validation", "--kube-apiserver", &server])
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

fn installed(kind: &str, version: &str, name: &str, content: &Value) -> Value {
    let mut object = json!({
        "apiVersion": version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": { "app.kubernetes.io/managed-by": "Helm" },
            "annotations": { "meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": NAMESPACE },
        },
    });
    for (key, value) in content.as_object().expect("an object") {
        object[key] = value.clone();
    }
    object
}

fn secrets(manifest: &Manifest) -> (String, String) {
    let of = |name: &str, key: &str| contents(manifest.get("Secret", name)).remove(key).expect("a key");
    (of("troupemq-cluster", "secret"), of("troupemq-users", "password"))
}

#[test]
fn secrets_are_drawn_once_and_kept_over_upgrades() {
    let Some(tools) = tools("kept secrets") else { return };
    let _permit = acquire(Weight::Node);
    let drawn = tools.objects(&[0, 1].map(|_| succeeded("template", tools.template("", &[]))));
    let (first, second) = (secrets(&drawn[0]), secrets(&drawn[1]));
    assert!(first.0.len() >= 48 && first.1.len() >= 32, "{first:?}");
    assert!(first.0 != second.0 && first.1 != second.1, "each is drawn");

    let encode = |value: &str| STANDARD.encode(value);
    let old = [
        installed("Secret", "v1", "troupemq-cluster", &json!({ "data": { "secret": encode("kept over upgrades") } })),
        installed("Secret", "v1", "troupemq-users", &json!({ "data": { "password": encode("kept as well") } })),
    ];
    let api = Api::start(&tools, &json!(old));
    let upgraded = tools.objects(&[succeeded("upgrade", api.upgrade(&tools, "logLevel: debug"))]);
    assert_eq!(secrets(&upgraded[0]), ("kept over upgrades".to_owned(), "kept as well".to_owned()));
    let users = contents(upgraded[0].get("Secret", "troupemq-users"));
    assert!(users["credentials.xml"].contains("<password>kept as well</password>"), "{users:?}");
    let cluster = upgraded[0].get("Secret", "troupemq-cluster");
    assert_eq!(
        text(&cluster["metadata"]["annotations"]["helm.sh/resource-policy"]),
        "keep",
        "the volumes outlive an uninstall, too"
    );
}

#[test]
fn pods_are_not_taken_away_before_they_have_left() {
    let Some(tools) = tools("shrink") else { return };
    let _permit = acquire(Weight::Node);
    let five = installed("StatefulSet", "apps/v1", "troupemq", &json!({ "spec": { "replicas": 5 } }));
    let api = Api::start(&tools, &json!([five]));
    let refused = api.upgrade(&tools, "replicas: 3");
    assert_eq!(refused.code, Some(1), "{refused:?}");
    for words in ["from 5 to 3", "kubectl -n mqtt exec troupemq-4 -- troupemq cluster leave", "--set allowShrink=true"] {
        assert!(refused.stderr.contains(words), "{words}: {}", refused.stderr);
    }
    for allowed in ["replicas: 5", "replicas: 7", "{replicas: 3, allowShrink: true}"] {
        succeeded(allowed, api.upgrade(&tools, allowed));
    }
}

/// To scale restarts nobody; another setting does.
#[test]
fn only_a_changed_configuration_changes_the_pods() {
    let Some(tools) = tools("checksum") else { return };
    let _permit = acquire(Weight::Node);
    let values =
        ["", "replicas: 5", "listeners: {mqtt: {port: 11883}}", "declaredSharedSubscriptions: [{shareName: a, topicFilter: b}]"];
    let texts = values.map(|values| succeeded(values, tools.template(values, &[])));
    let pods: Vec<Value> = tools.objects(&texts).iter().map(|manifest| manifest.pod().clone()).collect();
    assert_eq!(pods[0], pods[1]);
    assert!(pods[0] != pods[2] && pods[0] != pods[3]);
}

const SOON: std::time::Duration = std::time::Duration::from_secs(30);
