//! What every test stands on: processes, their configuration, a client under full control, and waiting for conditions.

pub mod client;
pub mod config;
pub mod events;
pub mod http;
pub mod jwt;
pub mod large;
pub mod node;
pub mod permit;
pub mod ports;
pub mod rbac;
pub mod roamer;
pub mod script;
pub mod spread;
pub mod trio;
pub mod wait;
pub mod wire;

use std::path::PathBuf;
use std::time::Duration;

/// What must happen, happens within this; long, because two cores may be busy with other tests.
pub const SOON: Duration = Duration::from_secs(20);
/// Silence of this length counts as "nothing comes".
pub const QUIET: Duration = Duration::from_millis(400);

/// The top of the repository.
pub fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("the package lies in the repository").to_owned()
}

/// The program under test: `TROUPEMQ_BIN`, or the dev build.
pub fn program() -> PathBuf {
    let path = std::env::var_os("TROUPEMQ_BIN").map_or_else(|| repository().join("target/debug/troupemq"), PathBuf::from);
    assert!(
        path.exists(),
        "no program at {}: build it with `cargo build -p troupemq`, or name it in TROUPEMQ_BIN",
        path.display()
    );
    path
}
