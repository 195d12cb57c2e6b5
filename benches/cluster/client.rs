//! Clients of the load tool, as the benches of a cluster connect them.

use std::net::SocketAddr;
use std::time::Duration;

use troupemq::load::{Session, Target, TargetPlan};
use troupemq::mqtt::ProtocolVersion;

pub use troupemq::load::{Client, encode, publish};

use crate::Failure;

pub const VERSION: ProtocolVersion = ProtocolVersion::V5;
/// A node that does not answer a CONNECT for so long is given up.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// Longer than any scene.
const KEEP_ALIVE_S: u16 = 600;

/// Connects; `session_s`: how long the session outlives the connection.
pub async fn connect(server: SocketAddr, id: &str, clean_start: bool, session_s: u32) -> Result<Client, Failure> {
    let plan = TargetPlan {
        servers: vec![server.to_string()],
        version: VERSION,
        keep_alive: KEEP_ALIVE_S,
        connect_timeout: CONNECT_WITHIN,
        ..TargetPlan::default()
    };
    let session = Session { clean_start, expiry_s: session_s, receive_maximum: Some(1000) };
    Ok(Client::open(&Target::find(&plan)?, 0, id, &session).await?)
}
