//! docs/kubernetes.md: what needs no cluster is run as it stands there; of the rest, values, files and commands of the program are looked up.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::harness::permit::{Weight, acquire};
use crate::harness::script::run;
use crate::harness::{program, repository};

use super::tools::{Tools, succeeded, tools};

const WITHIN: Duration = Duration::from_secs(60);

pub struct Block {
    pub info: String,
    pub text: String,
}

fn blocks() -> Vec<Block> {
    blocks_of("docs/kubernetes.md")
}

/// The fenced blocks of a document, with what stands behind the fence.
pub fn blocks_of(document: &str) -> Vec<Block> {
    let text = fs::read_to_string(repository().join(document)).expect("a document");
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for line in text.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(info), None) => open = Some(Block { info: info.to_owned(), text: String::new() }),
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some(mut block)) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a block does not end");
    blocks
}

/// All lines of commands.
fn commands() -> Vec<String> {
    let shell = blocks().into_iter().filter(|block| block.info.starts_with("sh"));
    shell.flat_map(|block| block.text.lines().map(str::to_owned).collect::<Vec<_>>()).collect()
}

/// A folder that looks like the top of the repository, with the programs on its PATH.
fn shell(tools: &Tools, directory: &Path) -> Command {
    for name in ["k8s", "config", "docs"] {
        std::os::unix::fs::symlink(repository().join(name), directory.join(name)).expect("a link");
    }
    let bin = directory.join("bin");
    fs::create_dir(&bin).expect("a directory");
    std::os::unix::fs::symlink(program(), bin.join("troupemq")).expect("a link");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new("bash");
    command.env("PATH", format!("{}:{}:{path}", bin.display(), tools.bin().display()));
    command.env("KUBECONFIG", "/dev/null").env("HOME", directory).current_dir(directory);
    command
}

#[test]
fn the_commands_that_need_no_cluster_work_in_their_order() {
    let Some(tools) = tools("guide") else { return };
    let _permit = acquire(Weight::Node);
    let directory = tempfile::tempdir().expect("a directory");
    let offline: Vec<Block> = blocks().into_iter().filter(|block| block.info == "sh offline").collect();
    assert!(offline.len() >= 6, "{}", offline.len());
    let script: String = offline.iter().map(|block| block.text.as_str()).collect();
    let mut command = shell(&tools, directory.path());
    let printed = succeeded(&script, run(command.args(["-euo", "pipefail", "-c", &script]), WITHIN));
    assert!(printed.contains("<max-queue-size>10000</max-queue-size>"), "{printed}");
    // What they wrote are objects that fit their schemas.
    let files = [
        "troupemq-cluster",
        "troupemq-users",
        "base",
        "three-nodes",
        "tls",
        "monitoring",
        "chart",
        "mutual-tls",
        "node-tls",
        "cluster-tls",
    ];
    let texts = files.map(|name| fs::read_to_string(directory.path().join(format!("{name}.yaml"))).expect("a file"));
    let manifests = tools.objects(&texts);
    for (name, manifest) in files.iter().zip(&manifests) {
        assert!(!manifest.0.is_empty(), "{name}");
    }
    for (manifest, name, key) in
        [(&manifests[0], "troupemq-cluster", "secret"), (&manifests[1], "troupemq-users", "credentials.xml")]
    {
        assert!(manifest.get("Secret", name)["data"][key].is_string(), "{name} has {key}");
    }
    assert!(manifests[5].find("PrometheusRule", "troupemq").is_some());
    assert!(manifests[6].find("Secret", "troupemq-cluster").is_none(), "it is to be there already");
}

/// Each `helm install` and `helm upgrade` is rendered with the values it names, those behind `--set` also by themselves.
#[test]
fn the_values_in_the_helm_commands_are_values_of_the_chart() {
    let Some(tools) = tools("guide's values") else { return };
    let _permit = acquire(Weight::Node);
    let mut seen = 0;
    let directory = tempfile::tempdir().expect("a directory");
    let mut rendered = Vec::new();
    for line in commands() {
        let Some(arguments) = ["helm install ", "helm upgrade "].iter().find_map(|start| line.strip_prefix(start)) else {
            continue;
        };
        seen += 1;
        let only_installed = ["--install", "--create-namespace", "--reset-then-reuse-values"];
        let words: Vec<&str> = arguments.split(' ').filter(|word| !only_installed.contains(word)).collect();
        rendered.push(format!("helm template {} >/dev/null", words.join(" ")));
    }
    assert!(seen >= 6, "{seen}");
    let mut command = shell(&tools, directory.path());
    let script = rendered.join("\n");
    succeeded(&script, run(command.args(["-euo", "pipefail", "-c", &script]), WITHIN));
}

/// `kubectl exec POD -- troupemq ..`: the program has the command and its options.
#[test]
fn the_commands_in_pods_are_commands_of_the_program() {
    let _permit = acquire(Weight::Node);
    let mut seen = 0;
    for line in commands() {
        let Some((_, inside)) = line.split_once(" -- troupemq ") else { continue };
        seen += 1;
        let mut command = Command::new(program());
        let finished = run(command.args(inside.split(' ')).arg("--help"), WITHIN);
        assert!(finished.code == Some(0) && finished.stdout.contains("Usage: troupemq"), "{line}: {finished:?}");
        // Not --help: without a node to talk to the command is understood and cannot be carried out.
        let directory = tempfile::tempdir().expect("a directory");
        let mut command = Command::new(program());
        let finished = run(command.args(inside.split(' ')).current_dir(directory.path()), WITHIN);
        assert!(finished.stderr.contains("./data"), "{line}: {finished:?}");
    }
    assert!(seen >= 6, "{seen}");
}

#[test]
fn files_that_the_guide_names_are_there() {
    let guide = fs::read_to_string(repository().join("docs/kubernetes.md")).expect("the guide");
    let words = guide.split(|c: char| c.is_whitespace() || "`(),;".contains(c));
    let named: Vec<&str> =
        words.filter(|word| ["k8s/", "config/", "cluster-tests/"].iter().any(|start| word.starts_with(start))).collect();
    assert!(named.len() >= 15, "{named:?}");
    for name in named {
        assert!(repository().join(name.trim_end_matches(['.', ':'])).exists(), "{name}");
    }
    let linked = guide.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    for link in linked.filter(|link| !link.is_empty() && !link.starts_with("http")) {
        assert!(repository().join("docs").join(link).exists(), "{link}");
    }
}
