use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::report::StatusReport;
use super::{AdminHandle, Answer, CallError, Command, Handler, Outcome, Progress, call, serve};

struct Echo;

impl Handler for Echo {
    fn status(&self) -> StatusReport {
        StatusReport { node: "n1".to_owned(), ..StatusReport::default() }
    }

    fn drain(&self, _progress: Progress) -> BoxFuture<'_, Outcome> {
        async { Ok("drained".to_owned()) }.boxed()
    }

    fn undrain(&self) -> Outcome {
        Ok("undrained".to_owned())
    }

    fn rebalance(&self) -> Outcome {
        Ok("rebalanced".to_owned())
    }

    fn leave(&self, _progress: Progress) -> BoxFuture<'_, Outcome> {
        async { Err("no majority".to_owned()) }.boxed()
    }

    fn forget(&self, node: String, progress: Progress) -> BoxFuture<'_, Outcome> {
        async move {
            progress.tell(format!("forgets {node}"));
            progress.tell("é".repeat(10_000));
            Ok("done".to_owned())
        }
        .boxed()
    }

    fn transfer_leadership(&self, to: Option<String>, group: Option<String>, _progress: Progress) -> BoxFuture<'_, Outcome> {
        async move { Ok(format!("{to:?} {group:?}")) }.boxed()
    }

    fn accept_loss(&self) -> Outcome {
        Err("nothing is lost".to_owned())
    }

    fn bans(&self) -> Outcome {
        Ok("nobody".to_owned())
    }

    fn pardon(&self, client_id: Option<String>, address: Option<String>) -> Outcome {
        Ok(format!("{client_id:?} {address:?}"))
    }

    fn queues(&self, top: usize) -> Outcome {
        Ok(format!("{top} queues"))
    }
}

fn open(directory: &Path) -> AdminHandle {
    serve(directory, Arc::new(Echo)).unwrap()
}

/// Asks on another thread, as another process would.
async fn ask(directory: &Path, command: Command) -> (Result<Answer, CallError>, Vec<String>) {
    let directory = directory.to_owned();
    let asked = move || {
        let mut told = Vec::new();
        let answer = call(&directory, command, |text| told.push(text.to_owned()));
        (answer, told)
    };
    tokio::task::spawn_blocking(asked).await.unwrap()
}

#[tokio::test]
async fn commands_are_answered_with_progress_results_and_errors() {
    let directory = tempfile::tempdir().unwrap();
    let _open = open(directory.path());
    let (status, _) = ask(directory.path(), Command::Status).await;
    assert!(matches!(status, Ok(Answer::Status(report)) if report.node == "n1"));
    let (left, _) = ask(directory.path(), Command::Leave).await;
    assert!(matches!(left, Err(CallError::Failed(error)) if error == "no majority"));
    let (forgot, told) = ask(directory.path(), Command::Forget { node: "n2".to_owned() }).await;
    assert!(matches!(forgot, Ok(Answer::Text(text)) if text == "done"));
    assert_eq!(told[0], "forgets n2");
    assert_eq!(told[1].len(), 4096, "a long line is cut");
    let (moved, _) = ask(directory.path(), Command::TransferLeadership { to: None, group: Some("meta".to_owned()) }).await;
    assert!(matches!(moved, Ok(Answer::Text(text)) if text == "None Some(\"meta\")"));
}

#[tokio::test]
async fn the_socket_is_its_users_alone_and_replaces_one_left_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("admin.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let first = open(directory.path());
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let second = serve(directory.path(), Arc::new(Echo)).map(drop);
    assert_eq!(second.unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    drop(first);
    assert!(!path.exists(), "a node that stops leaves none behind");
}

#[tokio::test]
async fn a_directory_with_a_long_path_will_do() {
    let directory = tempfile::tempdir().unwrap();
    let deep = directory.path().join("d".repeat(100)).join("e".repeat(100));
    std::fs::create_dir_all(&deep).unwrap();
    let _open = open(&deep);
    assert!(ask(&deep, Command::Status).await.0.is_ok());
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let error = |result: Result<Answer, CallError>| result.unwrap_err().to_string();
    let missing = ask(&directory.path().join("none"), Command::Status).await.0;
    assert!(error(missing).starts_with("there is no directory"));
    assert!(error(ask(directory.path(), Command::Status).await.0).starts_with("no node runs with"));
    drop(std::os::unix::net::UnixListener::bind(directory.path().join("admin.sock")).unwrap());
    assert!(error(ask(directory.path(), Command::Status).await.0).starts_with("no node runs with"));
}

#[tokio::test]
async fn what_is_not_understood_is_answered_and_ends_nothing() {
    use std::io::{Read, Write};
    let directory = tempfile::tempdir().unwrap();
    let _open = open(directory.path());
    for (request, answer) in [
        ("{}\n", "speaks version 1"),
        ("{\"version\":2,\"command\":\"status\"}\n", "speaks version 1"),
        ("{\"version\":1,\"command\":\"dance\"}\n", "does not understand the command"),
        ("{\"version\":1,\"command\":\"forget\"}\n", "does not understand the command"),
        ("hello\n", "is not JSON"),
        ("\n", "is not JSON"),
        ("unfinished", "has no end"),
    ] {
        let path = directory.path().join("admin.sock");
        let asked = move || {
            let mut stream = std::os::unix::net::UnixStream::connect(path).unwrap();
            stream.write_all(request.as_bytes()).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            text
        };
        let text = tokio::task::spawn_blocking(asked).await.unwrap();
        assert!(text.contains("\"kind\":\"failed\"") && text.contains(answer), "{request:?}: {text}");
    }
    assert!(ask(directory.path(), Command::Status).await.0.is_ok());
}
