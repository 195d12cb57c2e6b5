//! The commands that need no running broker, and the files that come with it.

use std::process::Command;
use std::time::Duration;

use crate::harness::script::{Finished, run};
use crate::harness::{program, repository};

const WITHIN: Duration = Duration::from_secs(20);

fn troupemq(arguments: &[&str]) -> Finished {
    run(Command::new(program()).args(arguments).current_dir(repository()), WITHIN)
}

#[test]
fn version_names_the_program_and_its_version() {
    let finished = troupemq(&["version"]);
    assert_eq!(finished.code, Some(0));
    assert!(finished.stdout.starts_with("troupemq 0."), "{finished:?}");
}

#[test]
fn help_names_every_command() {
    let finished = troupemq(&["--help"]);
    assert_eq!(finished.code, Some(0));
    for command in ["start", "cluster", "config", "version"] {
        assert!(finished.stdout.contains(command), "{finished:?}");
    }
    for option in ["--config", "--data", "--log"] {
        assert!(troupemq(&["start", "--help"]).stdout.contains(option), "{option}");
    }
}

#[test]
fn the_files_that_come_along_pass_the_check_without_a_warning() {
    for file in ["default", "cluster/node1", "cluster/node2", "cluster/node3", "rbac/conf/config"] {
        let finished = troupemq(&["config", "check", &format!("config/{file}.xml")]);
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{file}");
        assert!(finished.stdout.contains("1883") || finished.stdout.contains("188"), "{finished:?}");
    }
    let finished = troupemq(&["config", "check", "config/none.xml"]);
    assert_eq!(finished.code, Some(2));
    assert!(finished.stderr.contains("config/none.xml"), "{finished:?}");
}
