//! What no schema sees: that the objects fit each other and the program.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use serde_json::Value;

use crate::harness::permit::{Weight, acquire};
use crate::transports::pki::Pki;

use super::manifest::{list, number, selects, text};
use super::pod::{Pod, shutdown};
use super::sets::{Rendered, rendered};
use super::tools::tools;

/// Runs a check on everything that can be installed.
fn on_all(test: &str, check: impl Fn(&Rendered)) {
    let Some(tools) = tools(test) else { return };
    let _permit = acquire(Weight::Node);
    for rendered in rendered(&tools) {
        println!("{}: {}", rendered.name, rendered.manifest.names().join(", "));
        check(rendered);
    }
}

/// Rendering holds each object against the schemas of the oldest and the newest Kubernetes, unknown keys included.
#[test]
fn every_object_fits_its_schema_and_stands_once() {
    on_all("schemas", |rendered| {
        let names = rendered.manifest.names();
        let once: HashSet<&String> = names.iter().collect();
        assert_eq!(once.len(), names.len(), "{}: {names:?}", rendered.name);
        for kind in ["StatefulSet", "Service", "ConfigMap"] {
            assert!(rendered.manifest.of_kind(kind).next().is_some(), "{}: no {kind}", rendered.name);
        }
    });
}

/// A misspelt key, a wrong type, a key that stands twice and a kind that nobody knows are found: the test above can fail.
#[test]
fn the_check_of_schemas_finds_what_is_wrong() {
    let Some(tools) = tools("schemas that find") else { return };
    let _permit = acquire(Weight::Node);
    let service = |spec: &str| format!("apiVersion: v1\nkind: Service\nmetadata: {{name: x}}\nspec: {spec}\n");
    let certificate = "apiVersion: cert-manager.io/v1\nkind: Certificate\nmetadata: {name: x}\nspec: ";
    let cases = [
        (service("{ports: [{port: 1}]}"), None),
        (service("{ports: [{port: 1, prot: 2}]}"), Some("'prot' was unexpected")),
        (service("{ports: [{port: one}]}"), Some("'one'")),
        (service("{ports: [{port: 1}], ports: []}"), Some("stands twice")),
        ("apiVersion: x/v1\nkind: Wheel\nmetadata: {name: x}\n".to_owned(), Some("no Wheel")),
        (format!("{certificate}{{secretName: x, issuerRef: {{name: x}}, dnsNames: [x]}}"), None),
        (format!("{certificate}{{secretName: x, issuerRef: {{name: x}}, dnsName: [x]}}"), Some("dnsName")),
        ("apiVersion: apps/v1beta1\nkind: StatefulSet\nmetadata: {name: x}\n".to_owned(), Some("no StatefulSet")),
    ];
    for (object, wrong) in cases {
        let file = tools.path().join("case.yaml");
        std::fs::write(&file, &object).expect("a file");
        let mut command = tools.command("python");
        command.arg("-B").arg(crate::harness::repository().join("cluster-tests/kubernetes/check.py"));
        command.args(["--release", "1.37"]).arg(&file);
        let finished = crate::harness::script::run(&mut command, std::time::Duration::from_secs(30));
        match wrong {
            None => assert_eq!(finished.code, Some(0), "{object}: {}", finished.stderr),
            Some(word) => assert!(finished.code == Some(1) && finished.stderr.contains(word), "{object}: {finished:?}"),
        }
    }
}

#[test]
fn selectors_select_the_pods_and_ports_exist() {
    on_all("selectors", |Rendered { name, manifest, .. }| {
        let (set, pod) = (manifest.stateful_set(), manifest.pod());
        let labels = &pod["metadata"]["labels"];
        let mut selectors = vec![&set["spec"]["selector"]["matchLabels"]];
        selectors.extend(manifest.of_kind("Service").map(|service| &service["spec"]["selector"]));
        selectors.extend(manifest.of_kind("PodDisruptionBudget").map(|budget| &budget["spec"]["selector"]["matchLabels"]));
        selectors.extend(manifest.of_kind("NetworkPolicy").map(|policy| &policy["spec"]["podSelector"]["matchLabels"]));
        let spread = list(&pod["spec"]["topologySpreadConstraints"]);
        assert_eq!(spread.len(), 2, "{name}");
        selectors.extend(spread.iter().map(|spread| &spread["labelSelector"]["matchLabels"]));
        for selector in &selectors {
            assert!(selects(selector, labels), "{name}: {selector} does not select {labels}");
        }
        assert!(selectors.len() >= 5, "{name}: {selectors:?}");

        let ports = list(&manifest.container()["ports"]);
        let names: HashSet<&str> = ports.iter().map(|port| text(&port["name"])).collect();
        let numbers: HashSet<u64> = ports.iter().map(|port| number(&port["containerPort"])).collect();
        assert_eq!((names.len(), numbers.len()), (ports.len(), ports.len()), "{name}: a port stands twice");
        for service in manifest.of_kind("Service") {
            for port in list(&service["spec"]["ports"]) {
                assert!(names.contains(text(&port["targetPort"])), "{name}: no port for {port}");
                assert_eq!(manifest.port(text(&port["targetPort"])).map(u64::from), port["port"].as_u64(), "{name}: {port}");
            }
        }
        for monitor in manifest.of_kind("ServiceMonitor") {
            let selector = &monitor["spec"]["selector"]["matchLabels"];
            let chosen: Vec<&Value> =
                manifest.of_kind("Service").filter(|service| selects(selector, &service["metadata"]["labels"])).collect();
            assert_eq!(chosen.len(), 1, "{name}: each pod is scraped once");
            for endpoint in list(&monitor["spec"]["endpoints"]) {
                assert!(
                    list(&chosen[0]["spec"]["ports"]).iter().any(|port| port["name"] == endpoint["port"]),
                    "{name}: {endpoint}"
                );
            }
        }
        for policy in manifest.of_kind("NetworkPolicy") {
            guard(name, policy, &names, manifest.port("cluster"));
        }
        let peers = manifest.get("Service", text(&set["spec"]["serviceName"]));
        assert_eq!(
            (&peers["spec"]["clusterIP"], &peers["spec"]["publishNotReadyAddresses"]),
            (&"None".into(), &true.into()),
            "{name}: pods find each other before they are ready"
        );
    });
}

/// All ports are let in, each by one rule; the cluster port for pods of the same set alone.
fn guard(name: &str, policy: &Value, ports: &HashSet<&str>, cluster: Option<u16>) {
    let mut let_in = BTreeMap::new();
    for rule in list(&policy["spec"]["ingress"]) {
        for port in list(&rule["ports"]) {
            assert!(let_in.insert(text(&port["port"]), &rule["from"]).is_none(), "{name}: {port} by two rules");
        }
    }
    let named: HashSet<&str> = let_in.keys().copied().collect();
    assert_eq!(named, *ports, "{name}");
    let from = list(let_in["cluster"]);
    assert_eq!(from.len(), 1, "{name}: pods alone talk to the cluster port");
    assert_eq!(from[0]["podSelector"], policy["spec"]["podSelector"], "{name}");
    for open in ["http", "health", "metrics"].iter().filter_map(|open| let_in.get(open)) {
        assert!(!list(open).is_empty(), "{name}: everybody reaches it");
    }
    if let Some(egress) = policy["spec"]["egress"].as_array() {
        let to_peers = egress.iter().find(|rule| !rule["to"].is_null()).expect("a rule for peers");
        assert_eq!(to_peers["ports"][0]["port"].as_u64(), cluster.map(u64::from), "{name}");
        assert_eq!(to_peers["to"][0]["podSelector"], policy["spec"]["podSelector"], "{name}");
    }
}

#[test]
fn what_is_mounted_and_referred_to_is_there() {
    on_all("volumes", |Rendered { name, manifest, .. }| {
        let spec = &manifest.pod()["spec"];
        let claims = list(&manifest.stateful_set()["spec"]["volumeClaimTemplates"]);
        let volumes: BTreeSet<&str> = list(&spec["volumes"])
            .iter()
            .map(|volume| text(&volume["name"]))
            .chain(claims.iter().map(|claim| text(&claim["metadata"]["name"])))
            .collect();
        let mounts = list(&manifest.container()["volumeMounts"]);
        let mounted: BTreeSet<&str> = mounts.iter().map(|mount| text(&mount["name"])).collect();
        assert_eq!(mounted, volumes, "{name}");
        for volume in list(&spec["volumes"]) {
            if let Some(map) = volume["configMap"]["name"].as_str() {
                assert!(manifest.find("ConfigMap", map).is_some(), "{name}: no ConfigMap {map}");
            }
        }
        // The data are where all commands look without --data, and outlive the pod.
        let data = mounts.iter().find(|mount| mount["name"] == claims[0]["metadata"]["name"]).expect("the data are mounted");
        assert_eq!(data["mountPath"], manifest.container()["workingDir"], "{name}");
        assert!(!list(&manifest.container()["args"]).iter().any(|argument| argument == "--data"), "{name}");
        let account = text(&spec["serviceAccountName"]);
        assert!(
            manifest.find("ServiceAccount", account).is_some() || account == "brokers",
            "{name}: no ServiceAccount {account}"
        );
        for certificate in manifest.of_kind("Certificate").filter(|certificate| certificate["spec"]["isCA"] != true) {
            let secret = &certificate["spec"]["secretName"];
            assert!(list(&spec["volumes"]).iter().any(|volume| volume["secret"]["secretName"] == *secret), "{name}: {secret}");
        }
    });
}

#[test]
fn containers_may_do_no_more_than_they_must() {
    on_all("security", |Rendered { name, manifest, .. }| {
        let (spec, container) = (&manifest.pod()["spec"], manifest.container());
        let pod = &spec["securityContext"];
        assert_eq!((pod["runAsNonRoot"].as_bool(), pod["runAsUser"].as_u64()), (Some(true), Some(10_000)), "{name}");
        assert_eq!((pod["fsGroup"].as_u64(), &pod["seccompProfile"]["type"]), (Some(10_000), &"RuntimeDefault".into()), "{name}");
        let own = &container["securityContext"];
        assert_eq!(
            (own["readOnlyRootFilesystem"].as_bool(), own["allowPrivilegeEscalation"].as_bool()),
            (Some(true), Some(false)),
            "{name}"
        );
        assert_eq!(own["capabilities"], serde_json::json!({ "drop": ["ALL"] }), "{name}");
        assert_eq!(spec["automountServiceAccountToken"], false, "{name}");
        for privilege in ["hostNetwork", "hostPID", "hostIPC", "initContainers"] {
            assert!(spec[privilege].is_null(), "{name}: {privilege}");
        }
    });
}

/// The formula of values.yaml, from what `src/broker/stop.rs` does: delay, 2 s to hand leadership over, clients at their rate, and 4 s kept
/// for what comes behind.
#[test]
fn the_grace_period_is_enough_to_part_with_all_clients_at_the_rate() {
    on_all("grace", |Rendered { name, set, manifest }| {
        let stop = shutdown(manifest);
        let clients = set.map_or(20_000, |set| set.clients_per_node);
        let needed = stop.delay + 2 + clients.div_ceil(stop.clients_per_second) + 4;
        assert!(stop.timeout >= needed, "{name}: {} s, and {needed} are needed", stop.timeout);
        let grace = number(&manifest.pod()["spec"]["terminationGracePeriodSeconds"]);
        let notice = &manifest.container()["lifecycle"]["preStop"]["sleep"]["seconds"];
        let notice = notice.as_u64().unwrap_or(0);
        assert_eq!(grace, notice + stop.timeout + 5, "{name}");
        assert!(
            manifest.container()["lifecycle"]["preStop"].get("exec").is_none(),
            "{name}: nothing in a pod's end makes it leave"
        );
    });
}

#[test]
fn liveness_never_asks_whether_the_node_is_ready() {
    on_all("probes", |Rendered { name, manifest, .. }| {
        let probe = |kind: &str| &manifest.container()[format!("{kind}Probe")];
        for (kind, path) in [("startup", "liveness"), ("liveness", "liveness"), ("readiness", "readiness")] {
            let get = &probe(kind)["httpGet"];
            assert_eq!(get["path"], format!("/api/v1/health/{path}"), "{name}: {kind}");
            assert!(manifest.port(text(&get["port"])).is_some(), "{name}: {kind}: {get}");
        }
        let startup = number(&probe("startup")["periodSeconds"]) * number(&probe("startup")["failureThreshold"]);
        assert!(startup >= 600, "{name}: data of any size can be opened in {startup} s");
    });
}

/// The number of founders is in force for pods without data before `replicas` is, and restarts nobody.
#[test]
fn pods_found_a_cluster_only_with_a_majority_of_all_replicas() {
    on_all("founders", |Rendered { name, manifest, .. }| {
        let set = manifest.stateful_set();
        let env = list(&manifest.container()["env"]);
        let founders = env.iter().find(|variable| variable["name"] == "EXPECTED_NODES").expect("the number of founders");
        let reference = &founders["valueFrom"]["configMapKeyRef"];
        let map = manifest.get("ConfigMap", text(&reference["name"]));
        let expected: u64 = text(&map["data"][text(&reference["key"])]).parse().expect("a number");
        assert!(expected >= number(&set["spec"]["replicas"]), "{name}: {expected}");
        assert_eq!(set["spec"]["podManagementPolicy"], "Parallel", "{name}: pods that wait for each other start together");
        assert!(manifest.config().contains("<expected-nodes>${EXPECTED_NODES}</expected-nodes>"), "{name}");
    });
}

#[test]
fn the_program_takes_the_config_xml_of_every_pod() {
    let pki = Pki::new();
    on_all("config check", |Rendered { name, set, manifest }| {
        let root = tempfile::tempdir().expect("a directory");
        let pod = Pod::new(manifest, 1, root.path(), &pki);
        let checked = pod.check(manifest);
        assert_eq!(checked.code, Some(0), "{name}: {}", checked.stderr);
        let told: Vec<&str> = checked.stderr.lines().collect();
        let expected = set.map_or(&[][..], |set| set.warns_of);
        let all_expected = told.len() == expected.len() && told.iter().zip(expected).all(|(told, word)| told.contains(word));
        assert!(all_expected, "{name}: {told:?}");
        let in_force = |setting: &str| {
            let line = checked.stdout.lines().find_map(|line| line.trim().strip_prefix(setting));
            line.unwrap_or_else(|| panic!("{name}: no {setting} in {}", checked.stdout)).trim().to_owned()
        };
        let set_name = text(&manifest.stateful_set()["metadata"]["name"]);
        assert_eq!(in_force("node-name"), format!("{set_name}-1"), "{name}");
        let peers = format!("{set_name}-peers");
        assert_eq!(in_force("discovery/extension/address"), peers, "{name}");
        let cluster = manifest.port("cluster").expect("a cluster port");
        assert_eq!(in_force("reached by other nodes at"), format!("{set_name}-1.{peers}:{cluster}"), "{name}");
        assert_eq!(manifest.stateful_set()["spec"]["serviceName"], peers, "{name}");
        // Each port of the container is one that the program listens on, and the other way round.
        let bound: BTreeSet<u16> = checked
            .stdout
            .lines()
            .filter(|line| {
                line.contains(" on 0.0.0.0:") || line.contains(" on [::]:") || line.trim().starts_with("transport/tcp")
            })
            .filter_map(|line| line.split(&[' ', ',', '/'][..]).find_map(|word| word.rsplit_once(':')?.1.parse().ok()))
            .collect();
        let ports = list(&manifest.container()["ports"]).iter();
        let ports: BTreeSet<u16> = ports.map(|port| number(&port["containerPort"]) as u16).collect();
        assert_eq!(bound, ports, "{name}: {}", checked.stdout);
    });
}
