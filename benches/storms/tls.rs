//! Storms over TLS: full handshakes, and those of clients that come back with a ticket.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use rcgen::{CertificateParams, KeyPair};
use tempfile::TempDir;
use troupemq::load::{ConnectPace, Mark, Scene};

use crate::Failure;
use crate::common::nodes::{Shape, Trio};
use crate::common::report::Report;
use crate::load::{Watch, connects, figure, over_tls, play, user_bytes};
use crate::settings::Settings;

const HANDSHAKES: usize = 96;
const SETTLE: Duration = Duration::from_secs(3);
/// Of all clients, that a row of resumed handshakes is one.
const RESUMED_MIN: f64 = 0.99;
const KIB_EACH: f64 = 15.0;

pub fn run(settings: &Settings, report: &mut Report) -> Result<(), Failure> {
    let directory = TempDir::new()?;
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec!["localhost".to_owned()])?.self_signed(&key)?;
    let file = directory.path().join("server.pem");
    fs::write(&file, certificate.pem() + &key.serialize_pem())?;
    let closed = ConnectPace::Handshakes(HANDSHAKES);
    for (what, resume, pace, clients) in [
        ("full handshakes, 96 under way", false, closed, settings.tls),
        ("resumed with a ticket, 96 under way", true, closed, settings.tls),
        ("full handshakes, all at once", false, ConnectPace::Burst, settings.tls / 5),
        ("resumed with a ticket, all at once", true, ConnectPace::Burst, settings.tls / 5),
    ] {
        let (trio, server) = start(settings, &file)?;
        let before = user_bytes(&trio);
        let mut watch = Watch::new(&trio, Mark::Begin, Mark::End, Mark::Held);
        let outcome = play(over_tls(server, resume), Scene::Connect(connects(clients, pace, SETTLE)), &mut watch)?;
        let times = outcome.times("connect").unwrap_or_default();
        let each = watch.bytes.saturating_sub(before) as f64 / 1024.0 / clients as f64;
        let value = format!(
            "{:.0} connects/s, {:.0} us of CPU each; SYN to CONNACK p50 {:.0}, p99 {:.0} ms; {each:.1} KiB each; {:.0} resumed",
            figure(&outcome, "connects_per_s"),
            watch.cpu_s() * 1e6 / clients as f64,
            times.p50,
            times.p99,
            figure(&outcome, "resumed"),
        );
        let resumed = figure(&outcome, "resumed");
        if (resumed >= RESUMED_MIN * clients as f64) != resume || (!resume && resumed > 0.0) {
            return Err(format!("{what}: {resumed:.0} of {clients} handshakes were resumed").into());
        }
        // A few hundred share too little of what the node takes once.
        let goal = (pace == closed && !settings.quick).then(|| (format!("<= {KIB_EACH} KiB each"), each <= KIB_EACH));
        report.add(&format!("TLS: {clients} clients, {what}"), settings.program.name, value, goal);
    }
    Ok(())
}

fn start(settings: &Settings, keys: &std::path::Path) -> Result<(Trio, SocketAddr), Failure> {
    let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
    let listener = format!(
        "<tls-tcp-listener><port>{}</port><bind-address>127.0.0.1</bind-address>\
         <connect-overload-protection><enabled>false</enabled></connect-overload-protection>\
         <tls><keystore><path>{}</path></keystore></tls></tls-tcp-listener>",
        server.port(),
        keys.display()
    );
    let shape = Shape { nodes: 1, queue_max: 1_000, listeners: &listener, ..Shape::default() };
    Ok((Trio::start_as(&settings.program, &shape)?, server))
}
