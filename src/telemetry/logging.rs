//! Set-up of log output.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// Why log output could not be set up; the operator's to mend, except `AlreadySet`.
#[derive(Debug, thiserror::Error)]
pub enum LoggingError {
    #[error("log filter `{filter}` is not valid")]
    Filter {
        filter: String,
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },
    #[error("log output is set up already")]
    AlreadySet(#[source] tracing_subscriber::util::TryInitError),
}

/// Sends log lines to standard error, as the filter says: `info`, or `info,troupemq::cluster=debug`. Coloured on a terminal only.
/// Once a process.
pub fn init(filter: &str) -> Result<(), LoggingError> {
    let parsed = parse(&with_quiet_libraries(filter))?;
    tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .finish()
        .try_init()
        .map_err(LoggingError::AlreadySet)
}

/// A bare level is meant for the broker: libraries that are chatty at `info` stay at `warn`. A filter that names modules is taken as it is.
fn with_quiet_libraries(filter: &str) -> String {
    match filter {
        "info" => format!("{filter},{QUIET}"),
        "warn" => format!("{filter},{QUIET_RAFT}"),
        _ => filter.to_owned(),
    }
}

/// openraft warns of every call to a peer that is away and of every vote that is not granted, many times a second while a node restarts, and
/// names neither node nor group; and it calls it an error that a group was asked something when it had been stopped with its node. (A group that stops
/// by itself ends the node, and the log says why.) The `cluster` room says who is away, who leads and what is waited for.
const QUIET_RAFT: &str = "openraft=error,openraft::raft::raft_inner=off";
const QUIET: &str = "openraft=error,openraft::raft::raft_inner=off,actix_server=warn,fjall=warn,lsm_tree=warn";

fn parse(filter: &str) -> Result<EnvFilter, LoggingError> {
    EnvFilter::builder().parse(filter).map_err(|source| LoggingError::Filter { filter: filter.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_levels_and_targets() {
        for filter in ["info", "warn,troupemq=debug", "troupemq::cluster=trace", "off", ""] {
            assert!(parse(filter).is_ok(), "{filter}");
        }
    }

    #[test]
    fn a_bad_filter_is_named() {
        let error = parse("troupemq=loud").map(|_| ()).unwrap_err();
        assert_eq!(error.to_string(), "log filter `troupemq=loud` is not valid");
    }
}
