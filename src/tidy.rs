//! Holds the direction of dependencies between rooms (style.md 2): reads the sources, since one package has no crate borders.

use std::fs;
use std::path::{Path, PathBuf};

/// Rooms and what each may use besides itself. `main` and this file are outside.
const ALLOWED: &[(&str, &[&str])] = &[
    ("mqtt", &[]),
    ("signal", &["mqtt"]),
    ("config", &["mqtt", "signal"]),
    ("auth", &["mqtt", "signal", "config"]),
    ("session", &["mqtt", "signal", "config", "auth"]),
    ("queue", &["mqtt", "signal", "config"]),
    ("routing", &["mqtt", "signal", "config"]),
    ("replica", &["mqtt", "signal", "config", "session", "queue", "routing"]),
    ("telemetry", &["mqtt", "signal", "config"]),
    // `storage` keeps bytes for anybody to its right; `cluster` is the one that puts Raft's into it.
    ("storage", &["replica", "telemetry"]),
    ("cluster", &["mqtt", "signal", "config", "session", "queue", "routing", "replica", "storage", "telemetry"]),
    ("actor", &["mqtt", "signal", "config", "auth", "session", "queue", "routing", "replica", "storage", "cluster", "telemetry"]),
    ("internal_client", &["mqtt", "signal", "config", "replica", "cluster", "actor", "telemetry"]),
    ("addon", &["mqtt", "signal", "config", "replica", "actor", "internal_client", "telemetry"]),
    ("listener", &["mqtt", "signal", "config", "actor", "internal_client", "telemetry"]),
    ("edge", &["mqtt", "signal", "config", "internal_client", "telemetry"]),
    ("admin", &[]),
    // Stands on its own, for any server.
    ("load", &["mqtt"]),
    ("cli", &["mqtt", "config", "auth", "storage", "admin", "load"]),
    // The simulator puts the broker together anew; nobody uses it.
    ("sim", &["mqtt", "config", "replica", "storage", "cluster", "actor", "internal_client", "addon", "telemetry"]),
];

/// Rooms without async, clocks, sockets and randomness, and what must not be named there outside tests.
const PURE: &[&str] = &["mqtt", "signal", "auth", "session", "queue", "routing", "replica"];
const IMPURE: &[&str] = &[
    "tokio",
    "actix",
    "openraft",
    "std::net",
    "std::fs",
    "std::io",
    "Instant::now",
    "SystemTime",
    "rand::",
    "async fn",
    "std::thread",
];

#[test]
fn rooms_use_only_rooms_to_their_left() {
    let mut offences = Vec::new();
    for (room, allowed) in ALLOWED {
        for (file, text) in sources(room) {
            for (number, line) in production_lines(&text) {
                for used in rooms_named(line) {
                    if used != *room && ALLOWED.iter().any(|(r, _)| *r == used) && !allowed.contains(&used.as_str()) {
                        offences.push(format!("{}:{number}: {room} uses {used}", file.display()));
                    }
                }
            }
        }
    }
    assert!(offences.is_empty(), "{}", offences.join("\n"));
}

#[test]
fn pure_rooms_know_no_async_clock_socket_or_randomness() {
    let mut offences = Vec::new();
    for room in PURE {
        for (file, text) in sources(room) {
            for (number, line) in production_lines(&text) {
                for word in IMPURE.iter().filter(|word| line.contains(**word)) {
                    offences.push(format!("{}:{number}: {word}", file.display()));
                }
            }
        }
    }
    assert!(offences.is_empty(), "{}", offences.join("\n"));
}

#[test]
fn message_paths_have_no_unbounded_sends() {
    let mut offences = Vec::new();
    for (room, _) in ALLOWED {
        for (file, text) in sources(room) {
            for (number, line) in production_lines(&text) {
                if ["do_send(", "unbounded_channel", "mpsc::channel()"].iter().any(|word| line.contains(word)) {
                    offences.push(format!("{}:{number}: {}", file.display(), line.trim()));
                }
            }
        }
    }
    assert!(offences.is_empty(), "{}", offences.join("\n"));
}

/// `crate::<room>` wherever it stands in the line.
fn rooms_named(line: &str) -> Vec<String> {
    line.split("crate::").skip(1).map(|rest| rest.chars().take_while(|c| c.is_ascii_lowercase() || *c == '_').collect()).collect()
}

/// Lines up to the file's test module, without comments.
fn production_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line))
        .take_while(|(_, line)| line.trim() != "#[cfg(test)]")
        .filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// Sources of a room but its tests and test fixtures.
fn sources(room: &str) -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut pending: Vec<PathBuf> =
        [root.join(room), root.join(format!("{room}.rs"))].into_iter().filter(|path| path.exists()).collect();
    let mut found = Vec::new();
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if path.extension().is_some_and(|e| e == "rs") && !is_test(&path) {
            found.push((path.clone(), fs::read_to_string(&path).unwrap()));
        }
    }
    assert!(!found.is_empty(), "no sources of {room}");
    found
}

/// By the part of the path below the sources: what the clone lies in may have any name.
fn is_test(path: &Path) -> bool {
    let below = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
    below.components().any(|part| {
        let name = part.as_os_str().to_string_lossy();
        let stem = name.strip_suffix(".rs").unwrap_or(&name);
        stem.ends_with("_test") || stem.ends_with("_tests") || ["tests", "test", "fixture", "arbitrary", "fuzz"].contains(&stem)
    })
}
