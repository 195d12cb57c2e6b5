//! `troupemq ban ..` and `troupemq queues`: ask a running node by its admin socket.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::write_line;
use crate::admin::{self, Answer};

#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = BAN_EXAMPLES)]
pub struct BanArgs {
    /// The data directory of a node that runs on this machine
    #[arg(long, global = true, value_name = "DIR", default_value = "./data")]
    pub data: PathBuf,

    #[command(subcommand)]
    pub command: BanCommand,
}

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum BanCommand {
    /// Show whom the node keeps out, why, and for how long
    List,
    /// Let somebody in again
    ///
    /// On this node: each node keeps bans of its own, and comes to them by the same connects.
    #[command(group = clap::ArgGroup::new("whom").args(["client_id", "address"]).required(true).multiple(true))]
    Remove {
        /// The client id that is banned
        #[arg(long, value_name = "ID")]
        client_id: Option<String>,
        /// The address that is banned
        #[arg(long, value_name = "ADDRESS")]
        address: Option<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = QUEUES_EXAMPLES)]
pub struct QueuesArgs {
    /// The data directory of a node that runs on this machine
    #[arg(long, value_name = "DIR", default_value = "./data")]
    pub data: PathBuf,

    /// How many queues to show, the fullest first; no more than 1000
    #[arg(long, value_name = "NUMBER", default_value_t = 20)]
    pub top: usize,
}

const BAN_EXAMPLES: &str = "\
Examples:
  troupemq ban list --data /var/lib/troupemq
  troupemq ban remove --client-id pump-7

Whom security/unstable-clients/ban of config.xml keeps out. A ban ends by itself, and with the node.

Exit status: 0 done, 1 there is no such ban, or the node does not answer, 2 the command line is wrong.";

const QUEUES_EXAMPLES: &str = "\
Examples:
  troupemq queues --data /var/lib/troupemq --top 5

Shows sessions by client id and shared subscriptions as $share/name/filter, of the whole cluster, with what they hold and may hold.

Exit status: 0 done, 1 the node does not answer, 2 the command line is wrong.";

pub fn run_ban(arguments: BanArgs) -> ExitCode {
    ask(&arguments.data, ban_command(arguments.command))
}

pub fn run_queues(arguments: &QueuesArgs) -> ExitCode {
    ask(&arguments.data, admin::Command::Queues { top: arguments.top })
}

fn ban_command(command: BanCommand) -> admin::Command {
    match command {
        BanCommand::List => admin::Command::Bans,
        BanCommand::Remove { client_id, address } => admin::Command::Pardon { client_id, address },
    }
}

fn ask(data: &Path, command: admin::Command) -> ExitCode {
    match admin::call(data, command, |text| write_line(&mut io::stderr(), text)) {
        Ok(Answer::Text(text)) => {
            write_line(&mut io::stdout(), text);
            ExitCode::SUCCESS
        }
        Ok(Answer::Status(_)) => {
            write_line(&mut io::stderr(), "troupemq: the node answered something else");
            ExitCode::FAILURE
        }
        Err(error) => {
            write_line(&mut io::stderr(), format_args!("troupemq: {error}"));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parse(args: &[&str]) -> Option<admin::Command> {
        match Cli::try_parse_from(["troupemq"].iter().chain(args)).ok()?.command {
            Command::Ban(arguments) => Some(ban_command(arguments.command)),
            Command::Queues(arguments) => Some(admin::Command::Queues { top: arguments.top }),
            _ => None,
        }
    }

    #[test]
    fn what_is_asked_is_understood_and_a_ban_must_be_named() {
        let pardon = |client_id: Option<&str>, address: Option<&str>| {
            let (client_id, address) = (client_id.map(ToOwned::to_owned), address.map(ToOwned::to_owned));
            Some(admin::Command::Pardon { client_id, address })
        };
        let table: [(&[&str], _); 8] = [
            (&["ban", "list"], Some(admin::Command::Bans)),
            (&["ban", "--data", "d", "list"], Some(admin::Command::Bans)),
            (&["ban", "remove", "--client-id", "c", "--data", "d"], pardon(Some("c"), None)),
            (&["ban", "remove", "--client-id", "c", "--address", "a"], pardon(Some("c"), Some("a"))),
            (&["ban", "remove"], None),
            (&["ban"], None),
            (&["queues"], Some(admin::Command::Queues { top: 20 })),
            (&["queues", "--top", "3"], Some(admin::Command::Queues { top: 3 })),
        ];
        for (args, expected) in table {
            assert_eq!(parse(args), expected, "{args:?}");
        }
    }
}
