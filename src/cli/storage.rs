//! `troupemq storage`: the data of a node that is stopped.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::storage::check::{self, Report};
use crate::storage::recover::{self, Recovery, Who};

use super::write_line;

/// Exit status of `check` where something is damaged, and of `recover` where nothing was done.
const EXIT_DAMAGED: u8 = 1;
/// Exit status where the directory cannot be looked at: not there, in use, not permitted.
const EXIT_UNUSABLE: u8 = 2;

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum StorageCommand {
    /// Read all data of a stopped node and tell what is damaged
    ///
    /// Checks every journal, log entry and record against its checksum, and the end of the log against what was reported as flushed. Changes
    /// nothing. Needs room for a copy of the journals beside the directory, or in the system's temporary directory.
    #[command(after_long_help = CHECK_EXAMPLES)]
    Check(DataArgs),
    /// Set the data of a stopped node aside, so that the other nodes fill it again
    ///
    /// For a node that refuses its start because its data is damaged. The data is moved into a folder inside the directory and never deleted. The
    /// node stays who it is; when it is started it gets everything from the other nodes, and has no vote until it has. One node at a time: wait until
    /// `troupemq cluster status` shows it as a voter again before another one. A cluster of one node has nobody to fill it: refused without
    /// --lose-all.
    #[command(after_long_help = RECOVER_EXAMPLES)]
    Recover(RecoverArgs),
}

#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct DataArgs {
    /// The node's data directory
    #[arg(long, value_name = "DIR", default_value = "./data")]
    pub data: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct RecoverArgs {
    #[command(flatten)]
    pub data: DataArgs,

    /// Do it; without this it is only said what would be done
    #[arg(long)]
    pub yes: bool,

    /// Give up all the node held, and who it is: it starts as a new, empty one
    ///
    /// For a cluster of one node, or where every node of a cluster lost its data. (A node that is not the only one joins its cluster again and is
    /// filled.)
    #[arg(long)]
    pub lose_all: bool,
}

const CHECK_EXAMPLES: &str = "\
Examples:
  troupemq storage check --data /var/lib/troupemq

Exit status: 0 nothing is damaged, 1 something is, 2 the directory cannot be checked (not there, not a node's, in use, not permitted).";

const RECOVER_EXAMPLES: &str = "\
Examples:
  troupemq storage recover --data /var/lib/troupemq
      Says what would be done
  troupemq storage recover --data /var/lib/troupemq --yes

Exit status: 0 done, 1 not done (--yes was not given, or --lose-all where nobody could fill the node), 2 the directory cannot be used (not there, not a node's, in use, not permitted).";

/// Runs the command; gives the exit status.
pub fn run(command: &StorageCommand) -> ExitCode {
    let (mut out, mut err) = (io::stdout(), io::stderr());
    ExitCode::from(match command {
        StorageCommand::Check(arguments) => check(&arguments.data, &mut out, &mut err),
        StorageCommand::Recover(arguments) => recover(arguments, &mut out, &mut err),
    })
}

fn check(data: &Path, out: &mut impl Write, err: &mut impl Write) -> u8 {
    let beside = data.canonicalize().ok().and_then(|data| Some(data.parent()?.to_owned()));
    let places: Vec<PathBuf> = beside.into_iter().chain([std::env::temp_dir()]).collect();
    match check::run(data, &places) {
        Ok(report) => {
            tell_report(&report, out);
            if report.damage.is_empty() { 0 } else { EXIT_DAMAGED }
        }
        Err(error) => unusable(&error.to_string(), err),
    }
}

fn tell_report(report: &Report, out: &mut impl Write) {
    if let Some(identity) = &report.identity {
        let cluster = identity.cluster_id.as_deref().unwrap_or("no cluster yet");
        write_line(out, format_args!("node {}, cluster {cluster}", identity.node_name));
        write_line(out, if report.closed { "closed cleanly" } else { "not closed cleanly" });
    }
    for (group, found) in report.groups.iter().enumerate() {
        let name = group.checked_sub(1).map_or_else(|| "meta".to_owned(), |shard| format!("shard {shard}"));
        write_line(out, format_args!("{name}: {} log entries, {} records readable", found.entries, found.records));
    }
    for damage in &report.damage {
        write_line(out, format_args!("damaged: {damage}"));
    }
    write_line(
        out,
        match report.damage.len() {
            0 => "nothing is damaged".to_owned(),
            1 => "1 damaged place".to_owned(),
            places => format!("{places} damaged places"),
        },
    );
    if report.damage.is_empty() {
        return;
    }
    match report.others.as_deref() {
        Some([]) => {
            write_line(out, "this node is its whole cluster: nobody can fill it again; restore the directory from a backup")
        }
        Some(others) => write_line(
            out,
            format_args!("the other nodes ({}) fill this one again after `troupemq storage recover`", others.join(", ")),
        ),
        None => write_line(out, "the other nodes, if there are any, fill this one again after `troupemq storage recover`"),
    }
}

fn recover(arguments: &RecoverArgs, out: &mut impl Write, err: &mut impl Write) -> u8 {
    let RecoverArgs { data: DataArgs { data }, yes, lose_all } = arguments;
    let who = if *lose_all { Who::IsNew } else { Who::Stays };
    #[expect(clippy::disallowed_methods, reason = "no node runs here whose clock it could be")]
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now_ms = now.map_or(0, |now| u64::try_from(now.as_millis()).unwrap_or(0));
    match recover::plan(data, who, now_ms) {
        Ok(planned) if planned.is_alone() && !lose_all => {
            write_line(err, ALONE);
            return EXIT_DAMAGED;
        }
        Ok(planned) if !yes => {
            tell_recovery(&planned, *yes, who, out);
            return EXIT_DAMAGED;
        }
        Ok(_) => {}
        Err(error) => return unusable(&error.to_string(), err),
    }
    match recover::run(data, who, now_ms) {
        Ok(recovery) => {
            tell_recovery(&recovery, *yes, who, out);
            0
        }
        Err(error) => unusable(&error.to_string(), err),
    }
}

const ALONE: &str = "troupemq: nothing was done: this node is its whole cluster, so nobody can fill it again; restore the directory from a backup \
                     if there is one. With --lose-all all it holds is given up (moved aside), and it starts as a new, empty node.";

fn tell_recovery(recovery: &Recovery, done: bool, who: Who, out: &mut impl Write) {
    let Recovery { aside, moved, identity, identity_fault, others } = recovery;
    let (moves, stays) = if done { ("moved", "stays") } else { ("would move", "would stay") };
    match moved.as_slice() {
        [] => write_line(out, "there is no data to set aside"),
        moved => write_line(
            out,
            format_args!(
                "{moves} {} to {} (to undo that before the node is started, move all in it back)",
                moved.join(", "),
                aside.display()
            ),
        ),
    }
    match identity {
        Some(_) if who == Who::IsNew => {
            write_line(out, "the node starts as with an empty directory, with the name its configuration says")
        }
        Some(identity) => match &identity.cluster_id {
            Some(cluster) => {
                let fill = match others {
                    Some(others) => format!("the other nodes ({}) fill it", others.join(", ")),
                    // Data of a release before.
                    None => "the other nodes fill it (if there are none, all is lost)".to_owned(),
                };
                write_line(
                    out,
                    format_args!(
                        "the node {stays} {} of cluster {cluster}; {fill} when it is started, and it has no vote until then",
                        identity.node_name
                    ),
                );
            }
            None => write_line(out, format_args!("the node {stays} {}, which belongs to no cluster yet", identity.node_name)),
        },
        None => {
            let fault = identity_fault.as_deref().unwrap_or("unreadable");
            write_line(
                out,
                format_args!(
                    "who the node is cannot be read ({fault}): it starts as with an empty directory, with the name its configuration says"
                ),
            );
        }
    }
    match (done, who) {
        (true, _) => {}
        (false, Who::Stays) => write_line(out, "nothing was done: only where other nodes hold the data, say --yes"),
        (false, Who::IsNew) => write_line(out, "nothing was done: to give up all this node holds, say --yes"),
    }
}

fn unusable(message: &str, err: &mut impl Write) -> u8 {
    write_line(err, format_args!("troupemq: {message}"));
    EXIT_UNUSABLE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::{Mode, Storage};

    fn arguments(data: &Path, yes: bool, lose_all: bool) -> RecoverArgs {
        RecoverArgs { data: DataArgs { data: data.to_owned() }, yes, lose_all }
    }

    #[test]
    fn where_nobody_could_fill_the_node_it_takes_one_word_more() {
        for (others, alone) in [(vec![], true), (vec!["b".to_owned(), "c".to_owned()], false)] {
            let dir = tempfile::tempdir().unwrap();
            {
                let storage = Storage::open(dir.path(), Mode::File, "a", 2, 1).unwrap();
                storage.set_cluster_id("c1", true).unwrap();
                storage.set_others(others).unwrap();
            }
            let told = |yes, lose_all| {
                let (mut out, mut err) = (Vec::new(), Vec::new());
                let status = recover(&arguments(dir.path(), yes, lose_all), &mut out, &mut err);
                (status, String::from_utf8([out, err].concat()).unwrap())
            };
            let has_data = || dir.path().join("raft").exists();
            let (status, said) = told(true, false);
            if alone {
                assert!(status == EXIT_DAMAGED && said.contains("--lose-all") && has_data(), "{status} {said}");
                let (status, said) = told(false, true);
                assert!(status == EXIT_DAMAGED && said.contains("say --yes") && has_data(), "{status} {said}");
                let (status, said) = told(true, true);
                assert!(status == 0 && said.contains("as with an empty directory") && !has_data(), "{status} {said}");
                assert!(!dir.path().join("identity").exists());
            } else {
                assert!(status == 0 && said.contains("(b, c) fill it") && !has_data(), "{status} {said}");
            }
        }
    }

    #[test]
    fn what_is_not_there_is_an_error_and_is_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let nowhere = dir.path().join("nowhere");
        let (mut out, mut err) = (Vec::new(), Vec::new());
        assert_eq!(check(&nowhere, &mut out, &mut err), EXIT_UNUSABLE);
        assert_eq!(recover(&arguments(&nowhere, true, false), &mut out, &mut err), EXIT_UNUSABLE);
        let err = String::from_utf8(err).unwrap();
        assert_eq!(err.matches("nowhere").count(), 2, "{err}");
        assert!(out.is_empty() && !nowhere.exists());
    }

    #[test]
    fn a_directory_that_is_no_nodes_is_refused_and_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("hosts"), "x").unwrap();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        assert_eq!(check(dir.path(), &mut out, &mut err), EXIT_UNUSABLE);
        assert_eq!(recover(&arguments(dir.path(), false, false), &mut out, &mut err), EXIT_UNUSABLE);
        assert_eq!(recover(&arguments(dir.path(), true, true), &mut out, &mut err), EXIT_UNUSABLE);
        let err = String::from_utf8(err).unwrap();
        assert_eq!(err.matches("no data directory of a node").count(), 3, "{err}");
        assert!(out.is_empty() && std::fs::read_dir(dir.path()).unwrap().count() == 1);
    }

    #[test]
    fn without_yes_nothing_is_done() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("raft")).unwrap();
        let told = |yes| {
            let mut out = Vec::new();
            let status = recover(&arguments(dir.path(), yes, false), &mut out, &mut Vec::new());
            (status, String::from_utf8(out).unwrap())
        };
        let (status, out) = told(false);
        assert!(status == EXIT_DAMAGED && out.contains("would move raft") && out.contains("--yes"), "{status} {out}");
        assert!(dir.path().join("raft").is_dir());
        let (status, out) = told(true);
        assert!(status == 0 && out.starts_with("moved raft to "), "{status} {out}");
        assert!(!dir.path().join("raft").exists());
    }
}
