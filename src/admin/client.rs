//! The side of `troupemq cluster ..`.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use super::protocol::{Answer, Command, LINE_BYTES_MAX, Line, Request, VERSION};
use super::socket;

/// Why a command has no answer; each says what to do.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("there is no directory {}; name the data directory of a node that runs on this machine with --data", path.display())]
    NoDirectory { path: PathBuf },
    #[error(
        "no node runs with the data directory {}; start it, or name the directory of one that runs on this machine with --data",
        path.display()
    )]
    NotRunning { path: PathBuf },
    #[error("this user may not open {}; run the command as the user that the node runs as, or as root", path.display())]
    Permission { path: PathBuf },
    #[error("cannot reach the node at {}: {source}", path.display())]
    Io {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the node answers something else than this program expects ({0}); use the troupemq program that it was started with")]
    Protocol(String),
    #[error("the node ended before the command was done; see its log, start it, and ask again")]
    Ended,
    #[error("{0}")]
    Failed(String),
}

/// Has the node of a data directory carry a command out; waits as long as that takes. `progress` gets a line now and then.
pub fn call(directory: &Path, command: Command, mut progress: impl FnMut(&str)) -> Result<Answer, CallError> {
    let path = directory.join(socket::FILE_NAME);
    let failed = |source: io::Error| io_error(directory, &path, source);
    let mut stream = socket::connect(directory).map_err(failed)?;
    let mut request = serde_json::to_vec(&Request { version: VERSION, command }).map_err(|error| failed(error.into()))?;
    request.push(b'\n');
    stream.write_all(&request).map_err(failed)?;
    let mut answers = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let read = answers.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line).map_err(failed)?;
        if read == 0 || line.last() != Some(&b'\n') {
            return Err(CallError::Ended);
        }
        match serde_json::from_slice(&line).map_err(|error| CallError::Protocol(error.to_string()))? {
            Line::Progress { text } => progress(&text),
            Line::Done { answer } => return Ok(answer),
            Line::Failed { error } => return Err(CallError::Failed(error)),
        }
    }
}

fn io_error(directory: &Path, path: &Path, source: io::Error) -> CallError {
    let kind = source.kind();
    // Of a directory that may not be entered nobody can say what is in it.
    let there = std::fs::metadata(directory);
    match (kind, there) {
        (io::ErrorKind::PermissionDenied, _) => CallError::Permission { path: path.to_owned() },
        (_, Err(error)) if error.kind() == io::ErrorKind::PermissionDenied => {
            CallError::Permission { path: directory.to_owned() }
        }
        (_, Err(_)) => CallError::NoDirectory { path: directory.to_owned() },
        (_, Ok(there)) if !there.is_dir() => CallError::NoDirectory { path: directory.to_owned() },
        (io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused, _) => CallError::NotRunning { path: directory.to_owned() },
        _ => CallError::Io { path: path.to_owned(), source },
    }
}
