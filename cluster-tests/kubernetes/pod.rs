//! What a pod's container finds when it starts: the files that are mounted, the environment, its command. Below a folder of the test in
//! place of `/`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use crate::harness::script::{Finished, run};
use crate::harness::{program, repository};
use crate::transports::pki::Pki;

use super::manifest::{Manifest, element, list, text};

const WITHIN: Duration = Duration::from_secs(30);
/// Stands in for a Secret that the manifests expect to be there.
const CLUSTER_SECRET: &str = "a-secret-that-somebody-made";

/// One pod of the StatefulSet.
pub struct Pod {
    pub name: String,
    root: PathBuf,
    pub env: Vec<(String, String)>,
    /// The text of `config.xml`, with paths below the folder.
    pub config: String,
}

impl Pod {
    /// Lays everything out below `root`.
    pub fn new(manifest: &Manifest, ordinal: usize, root: &Path, pki: &Pki) -> Self {
        let name = format!("{}-{ordinal}", text(&manifest.stateful_set()["metadata"]["name"]));
        let mut pod = Self { env: env(manifest, &name), name, root: root.to_owned(), config: String::new() };
        let mounts = list(&manifest.container()["volumeMounts"]);
        let places: Vec<&str> = mounts.iter().map(|mount| text(&mount["mountPath"])).collect();
        for mount in mounts {
            let folder = pod.place(text(&mount["mountPath"]));
            fs::create_dir_all(&folder).expect("a directory");
            for (file, mut content) in files(manifest, text(&mount["name"]), pki) {
                places.iter().for_each(|place| content = content.replace(*place, &pod.place(place).display().to_string()));
                // The folder of an extension is the parent of what is mounted.
                let (users, below) = ("/etc/troupemq/users<", pod.place("/etc/troupemq/users"));
                content = content.replace(users, &format!("{}<", below.display()));
                fs::write(folder.join(file), content).expect("a file");
            }
        }
        pod.config = fs::read_to_string(pod.config_path(manifest)).expect("the file that the command names");
        pod
    }

    fn place(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// The file that the container's command names.
    fn config_path(&self, manifest: &Manifest) -> PathBuf {
        let arguments = list(&manifest.container()["args"]);
        let at = arguments.iter().position(|argument| argument == "--config").expect("--config");
        self.place(text(&arguments[at + 1]))
    }

    /// `troupemq config check` of that file in the pod's environment, and no other.
    pub fn check(&self, manifest: &Manifest) -> Finished {
        let mut command = Command::new(program());
        command.env_clear().envs(self.env.iter().map(|(name, value)| (name, value)));
        run(command.args(["config", "check"]).arg(self.config_path(manifest)), WITHIN)
    }
}

fn env(manifest: &Manifest, pod: &str) -> Vec<(String, String)> {
    let value = |variable: &Value| {
        let from = &variable["valueFrom"];
        if let Some(value) = variable["value"].as_str() {
            return value.to_owned();
        }
        if let Some(field) = from["fieldRef"]["fieldPath"].as_str() {
            assert_eq!(field, "metadata.name");
            return pod.to_owned();
        }
        let (kind, reference) = match (&from["secretKeyRef"], &from["configMapKeyRef"]) {
            (Value::Null, map) => ("ConfigMap", map),
            (secret, _) => ("Secret", secret),
        };
        let (name, key) = (text(&reference["name"]), text(&reference["key"]));
        match manifest.find(kind, name) {
            Some(object) => contents(object).remove(key).unwrap_or_else(|| panic!("no {key} in {kind} {name}")),
            None if kind == "Secret" => CLUSTER_SECRET.to_owned(),
            None => panic!("no {kind} {name}"),
        }
    };
    list(&manifest.container()["env"]).iter().map(|variable| (text(&variable["name"]).to_owned(), value(variable))).collect()
}

/// Keys and contents of a ConfigMap or Secret.
pub fn contents(object: &Value) -> BTreeMap<String, String> {
    let entries = |field: &str| object[field].as_object().into_iter().flatten();
    let plain = |(key, value): (&String, &Value)| (key.clone(), text(value).to_owned());
    let decoded = |(key, value): (&String, &Value)| {
        let bytes = STANDARD.decode(text(value)).expect("base64");
        (key.clone(), String::from_utf8(bytes).expect("text"))
    };
    if object["kind"] == "Secret" {
        entries("data").map(decoded).chain(entries("stringData").map(plain)).collect()
    } else {
        entries("data").map(plain).collect()
    }
}

/// The files of a volume.
fn files(manifest: &Manifest, volume: &str, pki: &Pki) -> BTreeMap<String, String> {
    let volumes = list(&manifest.pod()["spec"]["volumes"]);
    let Some(volume) = volumes.iter().find(|known| known["name"] == volume) else { return BTreeMap::new() };
    if let Some(name) = volume["configMap"]["name"].as_str() {
        return contents(manifest.get("ConfigMap", name));
    }
    let Some(name) = volume["secret"]["secretName"].as_str() else { return BTreeMap::new() };
    if let Some(secret) = manifest.find("Secret", name) {
        return contents(secret);
    }
    // Made by somebody else: cert-manager, or a person who read the guide.
    let read = |path: PathBuf| fs::read_to_string(path).expect("a file");
    if volume["name"] == "tls" {
        let server = || read(pki.path().join("server.pem"));
        let files = [("tls.crt", server()), ("tls.key", server()), ("ca.crt", read(pki.path().join("ca.pem")))];
        return files.into_iter().map(|(name, content)| (name.to_owned(), content)).collect();
    }
    if volume["name"] == "cluster-tls" {
        let (certificate, key) = pki.node(&node_names(manifest, name));
        let files = [("tls.crt", certificate), ("tls.key", key), ("ca.crt", read(pki.path().join("ca.pem")))];
        return files.into_iter().map(|(name, content)| (name.to_owned(), content)).collect();
    }
    assert_eq!(volume["name"], "users", "who makes Secret {name}?");
    let credentials = "config/rbac/extensions/hivemq-file-rbac-extension/conf/credentials.xml";
    [("credentials.xml".to_owned(), read(repository().join(credentials)))].into_iter().collect()
}

/// The names that cert-manager would put into a Secret's certificate; some where a person makes it who does not want them looked at.
fn node_names(manifest: &Manifest, secret: &str) -> Vec<String> {
    let made = manifest.of_kind("Certificate").find(|certificate| certificate["spec"]["secretName"] == secret);
    let Some(spec) = made.map(|certificate| &certificate["spec"]) else { return vec!["node.example".to_owned()] };
    assert_eq!(spec["usages"], serde_json::json!(["server auth", "client auth"]));
    list(&spec["dnsNames"]).iter().map(|name| text(name).to_owned()).collect()
}

/// Seconds that `config.xml` gives the program to stop, and what it says of the way.
pub struct Shutdown {
    pub delay: u64,
    pub clients_per_second: u64,
    pub timeout: u64,
}

pub fn shutdown(manifest: &Manifest) -> Shutdown {
    let of = |name: &str| element(manifest.config(), &format!("shutdown/{name}")).parse().expect("a number");
    Shutdown { delay: of("delay"), clients_per_second: of("clients-per-second"), timeout: of("timeout") }
}
