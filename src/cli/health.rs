//! `troupemq health`: asks a node's health API, as a probe does that has no other program to ask with.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::Value;

use super::write_line;

#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_long_help = EXAMPLES)]
pub struct HealthArgs {
    /// Where the node serves HTTP
    ///
    /// The `http` element of config.xml; http:// and a host, with a port or without.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:8080", value_parser = base)]
    pub url: Base,

    /// Ask whether the node runs, not whether it is ready for clients
    ///
    /// A node that waits for its cluster runs. A container or pod is to be restarted for this one only.
    #[arg(long)]
    pub liveness: bool,

    /// How long to wait for the answer, seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=300))]
    pub timeout: u16,
}

/// Host and port of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    host: String,
    port: u16,
}

const EXAMPLES: &str = "\
Examples:
  troupemq health
      UP, or DOWN and what the node waits for
  troupemq health --liveness
  troupemq health --url http://node2:8080

Exit status: 0 up, 1 down or no answer, 2 the command line is wrong.";

/// More than any answer has, bytes.
const ANSWER_MAX: u64 = 1 << 20;
/// That of HTTP.
const PORT: u16 = 80;

pub fn run(arguments: &HealthArgs) -> ExitCode {
    match ask(arguments) {
        Ok(verdict) => {
            write_line(&mut io::stdout(), &verdict.text);
            if verdict.up { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            let Base { host, port } = &arguments.url;
            let message = format!(
                "troupemq: no word of its health from {host}:{port}: {error}; is the node running, with <http> on that address?"
            );
            write_line(&mut io::stderr(), message);
            ExitCode::FAILURE
        }
    }
}

struct Verdict {
    up: bool,
    /// `UP`, or `DOWN: ` and why.
    text: String,
}

fn base(text: &str) -> Result<Base, String> {
    let hint = "allowed: http:// and a host, such as http://127.0.0.1:8080";
    let authority = text.strip_prefix("http://").map(|rest| rest.strip_suffix('/').unwrap_or(rest)).unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        // The last colon of an IPv6 address is inside its brackets.
        Some((host, port)) if !port.ends_with(']') => {
            (host, port.parse::<u16>().map_err(|_| format!("{port:?} is no port; {hint}"))?)
        }
        _ => (authority, PORT),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if host.is_empty() || host.contains(|c: char| "/@?#".contains(c) || c.is_whitespace() || c.is_control()) {
        return Err(hint.to_owned());
    }
    Ok(Base { host: host.to_owned(), port })
}

fn ask(arguments: &HealthArgs) -> io::Result<Verdict> {
    let Base { host, port } = &arguments.url;
    let timeout = Duration::from_secs(arguments.timeout.into());
    let deadline = Instant::now() + timeout;
    let mut refused = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host.as_str(), *port).to_socket_addrs()? {
        let answer = left(deadline).and_then(|left| TcpStream::connect_timeout(&address, left)).and_then(|stream| {
            let path = if arguments.liveness { "liveness" } else { "readiness" };
            get(stream, &format!("/api/v1/health/{path}"), host, deadline)
        });
        match answer {
            Ok(answer) => return verdict(&answer),
            Err(error) => refused = error,
        }
    }
    Err(refused)
}

fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The answer with its head. HTTP/1.0: the server closes behind it, and sends it in one piece.
fn get(mut stream: TcpStream, path: &str, host: &str, deadline: Instant) -> io::Result<Vec<u8>> {
    stream.set_write_timeout(Some(left(deadline)?))?;
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nAccept: application/json\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    let mut part = [0; 4096];
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut part) {
            Ok(0) => return Ok(answer),
            Ok(count) => answer.extend_from_slice(part.get(..count).unwrap_or_default()),
            // What a socket says when its time is over.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error),
        }
        if answer.len() as u64 > ANSWER_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the answer has no end"));
        }
    }
}

fn verdict(answer: &[u8]) -> io::Result<Verdict> {
    let strange = || io::Error::new(io::ErrorKind::InvalidData, "the answer is not that of a health API");
    let answer = str::from_utf8(answer).map_err(|_| strange())?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(strange)?;
    let code = head.split(' ').nth(1).and_then(|code| code.parse::<u16>().ok()).ok_or_else(strange)?;
    let body: Value = serde_json::from_str(body).map_err(|_| strange())?;
    match (code, body.get("status").and_then(Value::as_str)) {
        (200, Some("UP")) => Ok(Verdict { up: true, text: "UP".to_owned() }),
        (503, Some("DOWN")) => Ok(Verdict { up: false, text: format!("DOWN: {}", reasons(&body)) }),
        _ => Err(strange()),
    }
}

/// What keeps the node from being ready, in words.
fn reasons(body: &Value) -> String {
    let mut reasons = Vec::new();
    if body.pointer("/details/draining").and_then(Value::as_bool) == Some(true) {
        reasons.push("the node parts with its clients".to_owned());
    }
    if let Some(waiting) = body.pointer("/components/cluster/details/waiting-for").and_then(Value::as_str) {
        reasons.push(format!("waits for {waiting}"));
    }
    if let Some(waiting) = body.pointer("/components/mqtt/details/waiting-for").and_then(Value::as_str) {
        reasons.push(format!("waits for {waiting}"));
    }
    let listeners = body.pointer("/components/mqtt/components").and_then(Value::as_object);
    let down = |part: &Value| part.get("status").and_then(Value::as_str) == Some("DOWN");
    reasons.extend(
        listeners.into_iter().flatten().filter(|(_, part)| down(part)).map(|(name, _)| format!("{name} does not listen")),
    );
    if reasons.is_empty() { "it does not say why".to_owned() } else { reasons.join("; ") }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    fn arguments(url: &str, liveness: bool) -> HealthArgs {
        HealthArgs { url: base(url).unwrap(), liveness, timeout: 1 }
    }

    /// A server that answers one request with this; gives its URL, and then the request.
    fn server(answer: String) -> (String, thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            let mut byte = [0];
            while !request.ends_with(b"\r\n\r\n") {
                stream.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            stream.write_all(answer.as_bytes()).unwrap();
            String::from_utf8(request).unwrap()
        });
        (url, served)
    }

    #[test]
    fn urls_have_a_host_and_perhaps_a_port() {
        let cases = [
            ("http://127.0.0.1:8080", Some(("127.0.0.1", 8080))),
            ("http://node2:8080/", Some(("node2", 8080))),
            ("http://node2", Some(("node2", 80))),
            ("http://[::1]:8080", Some(("::1", 8080))),
            ("http://[::1]", Some(("::1", 80))),
            ("https://node2:8080", None),
            ("node2:8080", None),
            ("http://", None),
            ("http://:8080", None),
            ("http://node2:http", None),
            ("http://node2:70000", None),
            ("http://user@node2:8080", None),
            ("http://node2/health", None),
            ("http://a\r\nb:80", None),
        ];
        for (text, expected) in cases {
            let found = base(text).ok();
            assert_eq!(found.as_ref().map(|base| (base.host.as_str(), base.port)), expected, "{text}");
        }
    }

    #[test]
    fn what_the_node_says_is_told_in_a_line() {
        let waiting = r#"{"status":"DOWN","details":{"draining":false},"components":{
            "cluster":{"status":"DOWN","details":{"waiting-for":"a majority"}},
            "mqtt":{"status":"DOWN","components":{"tcp-listener-1883":{"status":"DOWN"},"websocket-listener-8000":{"status":"UP"}}}}}"#;
        let draining = r#"{"status":"DOWN","details":{"draining":true}}"#;
        let cases = [
            ("200 OK", r#"{"status":"UP"}"#, true, "UP"),
            ("503 Service Unavailable", waiting, false, "DOWN: waits for a majority; tcp-listener-1883 does not listen"),
            ("503 Service Unavailable", draining, false, "DOWN: the node parts with its clients"),
            ("503 Service Unavailable", r#"{"status":"DOWN"}"#, false, "DOWN: it does not say why"),
        ];
        for (status, body, up, text) in cases {
            let (url, served) = server(format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\n\r\n{body}"));
            let verdict = ask(&arguments(&url, !up)).unwrap();
            assert_eq!((verdict.up, verdict.text.as_str()), (up, text));
            let path = if up { "readiness" } else { "liveness" };
            assert!(served.join().unwrap().starts_with(&format!("GET /api/v1/health/{path} HTTP/1.0\r\n")));
        }
    }

    #[test]
    fn other_servers_and_silence_are_errors() {
        for answer in [
            "",
            "HTTP/1.1 200 OK\r\n\r\n<html>",
            "HTTP/1.1 404 Not Found\r\n\r\n{}",
            "HTTP/1.1 200 OK\r\n\r\n{\"status\":\"DOWN\"}",
        ] {
            let (url, served) = server(answer.to_owned());
            assert!(ask(&arguments(&url, false)).is_err(), "{answer}");
            served.join().unwrap();
        }
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", silent.local_addr().unwrap());
        assert_eq!(ask(&arguments(&url, false)).err().unwrap().kind(), io::ErrorKind::TimedOut);
        drop(silent);
        assert_eq!(ask(&arguments(&url, false)).err().unwrap().kind(), io::ErrorKind::ConnectionRefused);
    }
}
