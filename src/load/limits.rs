//! How many files this process may open: every client is one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::Failure;

/// Files a process needs beside its connections.
const SPARE: u64 = 100;

/// Makes room for so many clients: raises the soft limit up to the hard one where it must, also for processes started afterwards.
///
/// # Errors
/// `Files` where the hard limit is too low.
pub fn make_room(clients: usize) -> Result<(), Failure> {
    let needed = SPARE.saturating_add(clients as u64);
    let limit = getrlimit(Resource::Nofile);
    let Some(wanted) = wanted(needed, limit.current, limit.maximum)? else { return Ok(()) };
    setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: limit.maximum })
        .map_err(|error| Failure::Local { what: "raise the limit of open files", reason: error.to_string() })
}

/// The soft limit to be set, if one is. No limit is `None`.
fn wanted(needed: u64, soft: Option<u64>, hard: Option<u64>) -> Result<Option<u64>, Failure> {
    match (soft, hard) {
        (None, _) => Ok(None),
        (Some(soft), _) if soft >= needed => Ok(None),
        (Some(_), Some(hard)) if hard < needed => Err(Failure::Files { needed, hard }),
        (Some(_), hard) => Ok(Some(hard.unwrap_or(needed))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_is_raised_only_where_it_must_and_may() {
        assert_eq!(wanted(100, Some(1024), Some(4096)), Ok(None));
        assert_eq!(wanted(2000, Some(1024), Some(4096)), Ok(Some(4096)));
        assert_eq!(wanted(2000, Some(1024), None), Ok(Some(2000)));
        assert_eq!(wanted(2000, None, None), Ok(None));
        let error = wanted(5000, Some(1024), Some(4096)).unwrap_err();
        assert_eq!(error, Failure::Files { needed: 5000, hard: 4096 });
        assert!(error.to_string().contains("ulimit -n 5000"), "{error}");
    }
}
