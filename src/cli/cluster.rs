//! `troupemq cluster ..`: asks a running node by its admin socket, and prints what it answers.

use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::admin::report::{GroupReport, MemberReport, StatusReport};
use crate::admin::{self, Answer};

use super::{EXIT_CONFIG, write_line};

#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct ClusterArgs {
    /// The data directory of a node that runs on this machine
    #[arg(long, global = true, value_name = "DIR", default_value = "./data")]
    pub data: PathBuf,

    #[command(subcommand)]
    pub command: ClusterCommand,
}

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ClusterCommand {
    /// Show members, groups and what readiness waits for
    ///
    /// The exit status is 0 when the node is ready for clients, 1 when it is not, and 2 when it does not answer.
    Status {
        /// Print JSON instead of a table
        #[arg(long)]
        json: bool,
    },
    /// Have the node part with its clients, take no others and lead nothing
    ///
    /// For work on the node or its machine. It is not ready, refuses CONNECT (0x88, or 0x9C where a server reference is set for that), and
    /// its clients are asked to leave at shutdown/clients-per-second; it goes on replicating and voting. Waits until that is done. Ends with
    /// `undrain` or a restart.
    #[command(
        after_long_help = "Examples:\n  troupemq cluster drain --data /var/lib/troupemq\n\nExit status: 0 drained, 1 refused, or it cannot come to its end (the reason is told)."
    )]
    Drain,
    /// End a drain: the node takes clients and leads again
    Undrain,
    /// Have nodes with more clients than their share part with the excess
    ///
    /// All nodes that are alive and not draining, each at shutdown/clients-per-second. Where those clients go is up to them, or to the load
    /// balancer.
    Rebalance,
    /// Take the node out of its cluster for good, and end it
    ///
    /// Its clients are closed as in a restart, it hands leadership over, and it counts for no majority any more. Refused where those who stay
    /// would have no majority. A node that is only stopped stays a member: this is not for a restart. Its data directory is of no use
    /// afterwards; to join anew, start it with an empty one.
    #[command(
        after_long_help = "Examples:\n  troupemq cluster leave --data /var/lib/troupemq\n\nExit status: 0 it left and ends, 1 refused or not finished: give it again."
    )]
    Leave,
    /// Take a dead member out of the cluster, by name
    ///
    /// For a node that will not come back under its name: until then it counts for majorities. Refused while the node is alive. A node with a new,
    /// empty disk need not be forgotten: it joins again under its name.
    #[command(
        after_long_help = "Examples:\n  troupemq cluster forget node3\n\nExit status: 0 it is no member any more, 1 there is no such member, it is alive, or not finished: give it again."
    )]
    Forget {
        /// The name of the member, as `status` shows it
        #[arg(value_name = "NODE")]
        node: String,
    },
    /// Give up what only lost disks held, so that the nodes that are left go on
    ///
    /// To be told to nodes that lost their data, when `status` shows that they wait for a leader and the nodes that had one are lost for good. A
    /// node that comes back without data has no vote until the others have filled it again; where too many lost their data that never happens by
    /// itself. With this, it votes as it is: messages, sessions and subscriptions that were acknowledged and are on no disk any more are lost.
    #[command(
        after_long_help = "Examples:\n  troupemq cluster accept-loss --yes --data /var/lib/troupemq\n\nExit status: 0 done, or nothing to do, 1 nothing was given up, and the cluster does not go on: what to do is told."
    )]
    AcceptLoss {
        /// Without it nothing is done
        #[arg(long, required = true)]
        yes: bool,
    },
    /// Have other nodes lead
    ///
    /// Without options, all groups that this node leads. The cluster leaves the leadership where it was put for ten minutes; then it
    /// spreads it again.
    #[command(
        after_long_help = "Examples:\n  troupemq cluster transfer-leadership\n  troupemq cluster transfer-leadership --to node2 --group meta\n\nExit status: 0 other nodes lead (or there was nothing to hand over), 1 not done: the reason is told."
    )]
    TransferLeadership {
        /// The node that is to lead; without it the voter that is the least behind
        #[arg(long, value_name = "NODE")]
        to: Option<String>,
        /// The group: meta, or the number of a shard; whichever node leads it
        #[arg(long, value_name = "GROUP")]
        group: Option<String>,
    },
}

const EXAMPLES: &str = "\
Examples:
  troupemq cluster status --data data-cluster/node1
  troupemq cluster status --json | jq .groups
  troupemq cluster transfer-leadership --to node2
  troupemq cluster forget node3
  troupemq cluster leave --data /var/lib/troupemq

A command that did not come to its end can be given again.

Exit status: 0 done, 1 failed (status: not ready), 2 the command line is wrong (status: no answer).";

/// Runs a command; progress goes to standard error.
pub fn run(arguments: ClusterArgs) -> ExitCode {
    let json = arguments.command == ClusterCommand::Status { json: true };
    let asks = matches!(arguments.command, ClusterCommand::Status { .. });
    let told = |text: &str| write_line(&mut io::stderr(), text);
    match admin::call(&arguments.data, command(arguments.command), told) {
        Ok(Answer::Status(report)) => {
            let text = if json { serde_json::to_string_pretty(&report).unwrap_or_default() } else { table(&report) };
            write_line(&mut io::stdout(), text.trim_end());
            if report.ready { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Ok(Answer::Text(text)) => {
            write_line(&mut io::stdout(), text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            write_line(&mut io::stderr(), format_args!("troupemq: {error}"));
            if asks { ExitCode::from(EXIT_CONFIG) } else { ExitCode::FAILURE }
        }
    }
}

fn command(command: ClusterCommand) -> admin::Command {
    match command {
        ClusterCommand::Status { .. } => admin::Command::Status,
        ClusterCommand::Drain => admin::Command::Drain,
        ClusterCommand::Undrain => admin::Command::Undrain,
        ClusterCommand::Rebalance => admin::Command::Rebalance,
        ClusterCommand::Leave => admin::Command::Leave,
        ClusterCommand::Forget { node } => admin::Command::Forget { node },
        ClusterCommand::AcceptLoss { .. } => admin::Command::AcceptLoss,
        ClusterCommand::TransferLeadership { to, group } => admin::Command::TransferLeadership { to, group },
    }
}

/// What a person reads.
fn table(report: &StatusReport) -> String {
    let mut out = String::new();
    let id = report.cluster_id.as_deref().unwrap_or("none yet");
    _ = writeln!(out, "node     {} (TroupeMQ {})\ncluster  {id}", report.node, report.version);
    match &report.waiting_for {
        _ if report.ready => out.push_str("ready    yes\n"),
        Some(waiting) => _ = writeln!(out, "ready    no, for {} s: waits for {}", waiting.for_ms / 1000, waiting.what),
        None => out.push_str("ready    no\n"),
    }
    report.warnings.iter().for_each(|warning| _ = writeln!(out, "warning  {warning}"));
    out.push('\n');
    let members = report.members.iter().map(|member| {
        [
            member.name.clone(),
            member.address.clone(),
            state(member).to_owned(),
            member.version.clone().unwrap_or_else(|| "-".to_owned()),
            member.protocol.map_or_else(|| "-".to_owned(), |(min, max)| format!("{min}..{max}")),
            member.incarnation.to_string(),
        ]
    });
    columns(&mut out, ["MEMBER", "ADDRESS", "STATE", "VERSION", "PROTOCOL", "INCARNATION"], members);
    out.push('\n');
    let groups = report.groups.iter().map(|group| {
        [
            group.name.clone(),
            group.leader.clone().unwrap_or_else(|| "none".to_owned()),
            group.term.to_string(),
            replicas(group),
            group.last_log_index.to_string(),
            group.applied_index.to_string(),
            group.lag.to_string(),
        ]
    });
    columns(&mut out, ["GROUP", "LEADER", "TERM", "VOTERS (LEARNERS)", "LOG", "APPLIED", "LAG"], groups);
    out
}

fn state(member: &MemberReport) -> &'static str {
    match (member.alive, member.connected, member.draining) {
        (true, true, true) => "draining",
        (true, true, false) => "alive",
        (true, false, _) => "out of reach",
        (false, true, _) => "coming up",
        (false, false, _) => "dead",
    }
}

fn replicas(group: &GroupReport) -> String {
    let voters = group.voters.join(",");
    let all = if group.learners.is_empty() { voters } else { format!("{voters} ({})", group.learners.join(",")) };
    if group.changing { format!("{all}, changing") } else { all }
}

fn columns<const N: usize>(out: &mut String, head: [&str; N], rows: impl Iterator<Item = [String; N]>) {
    let rows: Vec<[String; N]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for row in &rows {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        _ = writeln!(out, "{}", cells.join("  ").trim_end());
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use clap::error::ErrorKind;

    use super::*;
    use crate::admin::report::Waiting;
    use crate::cli::{Cli, Command};

    fn parse_args(args: &[&str]) -> Result<ClusterArgs, clap::Error> {
        let all = ["troupemq", "cluster"].iter().chain(args);
        match Cli::try_parse_from(all)?.command {
            Command::Cluster(arguments) => Ok(arguments),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn commands_are_understood_with_the_directory_before_and_behind() {
        for args in [&["--data", "d", "forget", "n3"][..], &["forget", "n3", "--data", "d"]] {
            let parsed = parse_args(args).unwrap();
            assert_eq!(parsed.data, PathBuf::from("d"));
            assert_eq!(command(parsed.command), admin::Command::Forget { node: "n3".to_owned() });
        }
        let parsed = parse_args(&["transfer-leadership", "--to", "n2", "--group", "meta"]).unwrap();
        assert_eq!(parsed.data, PathBuf::from("./data"));
        let (to, group) = (Some("n2".to_owned()), Some("meta".to_owned()));
        assert_eq!(command(parsed.command), admin::Command::TransferLeadership { to, group });
        assert_eq!(command(parse_args(&["leave"]).unwrap().command), admin::Command::Leave);
        for args in [&["forget"][..], &["accept-loss"], &["leave", "n1"], &["transfer-leadership", "n2"], &["dance"], &[]] {
            assert_eq!(parse_args(args).unwrap_err().exit_code(), i32::from(EXIT_CONFIG), "{args:?}");
        }
        let help = parse_args(&["--help"]).unwrap_err();
        assert_eq!(help.kind(), ErrorKind::DisplayHelp);
        for word in
            ["status", "leave", "forget", "transfer-leadership", "accept-loss", "--data <DIR>", "Examples:", "Exit status"]
        {
            assert!(help.to_string().contains(word), "no {word} in {help}");
        }
    }

    #[test]
    fn the_table_shows_what_an_operator_asks_for() {
        let member = |name: &str, alive, connected| MemberReport {
            name: name.to_owned(),
            address: format!("{name}:7000"),
            alive,
            connected,
            version: alive.then(|| "1.2.3".to_owned()),
            protocol: alive.then_some((2, 3)),
            ..MemberReport::default()
        };
        let report = StatusReport {
            node: "node1".to_owned(),
            waiting_for: Some(Waiting { what: "a leader of group 0".to_owned(), since_ms: 0, for_ms: 61_000 }),
            members: vec![member("node1", true, true), member("a-longer-name", false, false)],
            groups: vec![GroupReport {
                name: "meta".to_owned(),
                voters: vec!["node1".to_owned(), "node2".to_owned()],
                learners: vec!["node6".to_owned()],
                ..GroupReport::default()
            }],
            warnings: vec!["settings differ".to_owned()],
            ..StatusReport::default()
        };
        let text = table(&report);
        for line in [
            "cluster  none yet",
            "ready    no, for 61 s: waits for a leader of group 0",
            "warning  settings differ",
            "node1          node1:7000          alive  1.2.3    2..3      0",
            "a-longer-name  a-longer-name:7000  dead   -        -         0",
            "meta   none    0     node1,node2 (node6)  0    0        0",
        ] {
            assert!(text.lines().any(|found| found == line), "no {line:?} in\n{text}");
        }
    }
}
