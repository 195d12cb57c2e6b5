//! `compose.yaml` as it is, but for the ports it opens on the machine, and a watcher made from this machine's `mosquitto_sub`.

use std::process::Command;
use std::time::Duration;

use super::engine::{Engine, IMAGE, engine, find, skip};
use crate::harness::permit::{Weight, acquire};
use crate::harness::script::{Finished, interop_skipped, run};
use crate::harness::{SOON, http, repository, wait};

const TEST: &str = "the_composition_starts_loses_nothing_when_a_node_is_killed_and_watches_it";
const UP: Duration = Duration::from_secs(120);
/// Those of the load in `compose.yaml`.
const CLIENTS: usize = 40;
const WATCHER: &str = "watcher:test";

struct Composition<'a> {
    engine: &'a Engine,
    command: Vec<String>,
    folder: tempfile::TempDir,
}

impl Composition<'_> {
    fn compose(&self, arguments: &[&str]) -> Finished {
        let mut command = Command::new(&self.command[0]);
        command.args(&self.command[1..]).args(["--project-name", "tmq", "--file"]).arg(self.folder.path().join("compose.yaml"));
        command.arg("--project-directory").arg(repository()).args(arguments);
        command.env("DOCKER_HOST", self.engine.host()).env("LOAD_DURATION", "10m").env("WATCHER_IMAGE", WATCHER);
        run(&mut command, UP)
    }

    #[track_caller]
    fn done(&self, arguments: &[&str]) -> String {
        let finished = self.compose(arguments);
        assert_eq!(finished.code, Some(0), "{arguments:?}: {finished:?}");
        finished.stdout
    }

    /// The engine's name for the container of a service.
    fn container(&self, service: &str) -> String {
        self.done(&["ps", "-q", service]).trim().to_owned()
    }
}

impl Drop for Composition<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.compose(&["logs", "--tail", "40"]).stdout);
        }
        _ = self.compose(&["down", "--volumes", "--timeout", "1"]);
    }
}

/// The second generation, or the first.
fn compose_command(engine: &Engine) -> Option<Vec<String>> {
    if engine.try_docker(&["compose", "version"]).code == Some(0) {
        return Some(vec!["docker".to_owned(), "compose".to_owned()]);
    }
    find("docker-compose").map(|program| vec![program.display().to_string()])
}

#[test]
fn the_composition_starts_loses_nothing_when_a_node_is_killed_and_watches_it() {
    if interop_skipped(TEST) {
        return;
    }
    let _permit = acquire(Weight::Cluster);
    let Some(engine) = engine(TEST) else { return };
    let Some(command) = compose_command(engine) else {
        return skip(TEST, "there is neither docker compose nor docker-compose");
    };
    engine.docker(&["tag", IMAGE, "troupemq"]);
    watcher_image(engine);
    let text = std::fs::read_to_string(repository().join("compose.yaml")).expect("compose.yaml");
    let portless: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with("ports:")).collect();
    assert_eq!(text.lines().count() - portless.len(), 3, "each node opens ports in one line");
    let folder = tempfile::tempdir().expect("a directory");
    std::fs::write(folder.path().join("compose.yaml"), portless.join("\n")).expect("a file");
    let composition = Composition { engine, command, folder };

    composition.done(&["up", "--detach", "--no-build"]);
    let (load, watcher) = (composition.container("load"), composition.container("watcher"));
    wait::until("messages flow", 2 * SOON, || {
        engine.logs(&load).contains(&format!("measuring: {CLIENTS} connected")).then_some(())
    });
    // On a busy machine a client may have gone on to another node before: one that has many is killed.
    let nodes = ["node1", "node2", "node3"].map(|node| (node, composition.container(node)));
    let (name, node) = wait::until("the clients are on the nodes", SOON, || {
        let counted = nodes.iter().map(|(name, node)| Some((clients(engine, node)?, name, node)));
        let (count, name, node) = counted.collect::<Option<Vec<_>>>()?.into_iter().max()?;
        (count >= CLIENTS / 3).then_some((name, node))
    });
    engine.docker(&["kill", node]);
    wait::until("the watcher hears of it", 2 * SOON, || told(engine, &watcher, "UNSPECIFIED").then_some(()));
    composition.done(&["start", name]);
    let health = || engine.docker(&["inspect", "--format", "{{.State.Health.Status}}", node]);
    wait::until("the node that was killed is ready again", 2 * SOON, || (health() == "healthy").then_some(()));
    engine.docker(&["kill", "--signal", "INT", &load]);
    let status = engine.docker(&["wait", &load]);
    let log = engine.logs(&load);
    assert_eq!(status, "0", "{log}");
    let lost = log.lines().find(|line| line.contains("acknowledged messages lost")).expect("its table");
    assert_eq!(lost.split_whitespace().last(), Some("0"), "{log}");
}

/// How many are connected to a node.
fn clients(engine: &Engine, node: &str) -> Option<usize> {
    let address = engine.address(node, "tmq_default");
    let (_, metrics) = http::get((address, 8080).into(), "/metrics")?;
    let line = metrics.lines().find(|line| line.starts_with("com_hivemq_networking_connections_current"))?;
    line.split([' ', '.']).nth(1)?.parse().ok()
}

fn told(engine: &Engine, watcher: &str, initiator: &str) -> bool {
    let wanted = format!("\"Disconnect initiator\":\"{initiator}\"");
    engine.logs(watcher).lines().any(|line| line.starts_with("$client-events/all/client-id/bench-") && line.contains(&wanted))
}

/// This machine's `mosquitto_sub` and its libraries.
fn watcher_image(engine: &Engine) {
    let folder = tempfile::tempdir().expect("a directory");
    let root = folder.path().join("rootfs");
    let program = find("mosquitto_sub").expect("`make test-needs` installs mosquitto_sub");
    let copy = |from: &std::path::Path, to: &std::path::Path| {
        let to = root.join(to.strip_prefix("/").unwrap_or(to));
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        std::fs::copy(from, to).expect("a copy");
    };
    copy(&program, "/usr/bin/mosquitto_sub".as_ref());
    let libraries = run(Command::new("ldd").arg(&program), SOON).stdout;
    for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
        copy(library.as_ref(), library.as_ref());
    }
    std::fs::write(folder.path().join("Dockerfile"), "FROM scratch\nCOPY rootfs/ /\n").expect("a file");
    engine.build_plain(&folder.path().to_string_lossy(), WATCHER);
}
