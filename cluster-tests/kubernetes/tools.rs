//! helm, kubectl and the schemas, from `.kube`, which `make test-needs` makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use crate::harness::repository;
use crate::harness::script::{Finished, interop_skipped, run};

use super::manifest::Manifest;

pub const RELEASE: &str = "troupemq";
pub const NAMESPACE: &str = "mqtt";
/// The oldest release that the chart says it supports, and the newest that the schemas know.
const KUBERNETES: [&str; 2] = ["1.30", "1.37"];
const WITHIN: Duration = Duration::from_secs(60);

pub struct Tools {
    bin: PathBuf,
    /// Files that the programs are given.
    directory: tempfile::TempDir,
}

/// `None`, with the reason printed, where the tools could not be installed or are not wanted.
pub fn tools(test: &str) -> Option<Tools> {
    if interop_skipped(test) {
        return None;
    }
    let home = repository().join(".kube");
    if let Ok(reason) = fs::read_to_string(home.join("skipped")) {
        println!("SKIPPED {test}: {}", reason.trim());
        return None;
    }
    let bin = home.join("bin");
    assert!(bin.join("helm").exists(), "no helm in {}: run `make test-needs` (or set TROUPEMQ_SKIP_INTEROP=1)", bin.display());
    Some(Tools { bin, directory: tempfile::tempdir().expect("a directory") })
}

pub fn chart() -> PathBuf {
    repository().join("k8s/helm/troupemq")
}

impl Tools {
    /// helm, kubectl and python stand in this folder.
    pub fn bin(&self) -> &Path {
        &self.bin
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// One of the programs, kept from a cluster that the machine may know.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.bin.join(program));
        command.env("KUBECONFIG", "/dev/null").env("HOME", self.path());
        command
    }

    fn values(&self, values: &str) -> PathBuf {
        let file = self.path().join("values.yaml");
        fs::write(&file, values).expect("a file");
        file
    }

    pub fn lint(&self, values: &str) -> Finished {
        run(self.command("helm").args(["lint", "--strict"]).arg(chart()).arg("-f").arg(self.values(values)), WITHIN)
    }

    /// `helm template` with these values, as YAML, and these arguments.
    pub fn template(&self, values: &str, more: &[&str]) -> Finished {
        let mut command = self.command("helm");
        command.args(["template", RELEASE]).arg(chart()).args(["-n", NAMESPACE]).arg("-f").arg(self.values(values)).args(more);
        run(&mut command, WITHIN)
    }

    /// `kubectl kustomize` of a folder in `k8s`.
    pub fn kustomize(&self, folder: &str) -> Finished {
        run(self.command("kubectl").arg("kustomize").arg(repository().join("k8s").join(folder)), WITHIN)
    }

    /// The objects in these texts, each held against its schema.
    pub fn objects(&self, texts: &[String]) -> Vec<Manifest> {
        let files: Vec<PathBuf> = (0..texts.len()).map(|index| self.path().join(format!("{index}.yaml"))).collect();
        for (file, text) in files.iter().zip(texts) {
            fs::write(file, text).expect("a file");
        }
        let mut command = self.command("python");
        command.arg("-B").arg(repository().join("cluster-tests/kubernetes/check.py"));
        for release in KUBERNETES {
            command.args(["--release", release]);
        }
        let checked = succeeded("check.py", run(command.args(&files), WITHIN));
        let lists: Vec<Vec<Value>> = serde_json::from_str(&checked).expect("JSON");
        lists.into_iter().map(Manifest).collect()
    }
}

/// What a program printed that has to end well.
#[track_caller]
pub fn succeeded(what: &str, finished: Finished) -> String {
    assert_eq!(finished.code, Some(0), "{what}:\n{}\n{}", finished.stdout, finished.stderr);
    finished.stdout
}
