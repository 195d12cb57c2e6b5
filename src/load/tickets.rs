//! Session tickets of a fleet. What rustls brings keeps eight for each server, as one client needs; here thousands share one configuration.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use tokio_rustls::rustls::NamedGroup;
use tokio_rustls::rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Tls12ClientSessionValue, Tls13ClientSessionValue,
};
use tokio_rustls::rustls::pki_types::ServerName;

/// Tickets kept for one server; more push out the oldest. A ticket takes about a kilobyte.
const TICKETS_MAX: usize = 100_000;
/// Servers whose key exchange and TLS 1.2 session are kept.
const SERVERS_MAX: usize = 256;

/// Each ticket of TLS 1.3 is handed out once; the TLS 1.2 session of a server is shared.
#[derive(Debug)]
pub(super) struct Tickets {
    tls13: Mutex<HashMap<ServerName<'static>, VecDeque<Tls13ClientSessionValue>>>,
    others: ClientSessionMemoryCache,
}

impl Tickets {
    pub(super) fn new() -> Self {
        Self { tls13: Mutex::default(), others: ClientSessionMemoryCache::new(SERVERS_MAX) }
    }
}

impl ClientSessionStore for Tickets {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        self.others.set_kx_hint(server_name, group);
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        self.others.kx_hint(server_name)
    }

    fn set_tls12_session(&self, server_name: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.others.set_tls12_session(server_name, value);
    }

    fn tls12_session(&self, server_name: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.others.tls12_session(server_name)
    }

    fn remove_tls12_session(&self, server_name: &ServerName<'static>) {
        self.others.remove_tls12_session(server_name);
    }

    fn insert_tls13_ticket(&self, server_name: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut all = self.tls13.lock();
        let tickets = all.entry(server_name).or_default();
        if tickets.len() >= TICKETS_MAX {
            tickets.pop_front();
        }
        tickets.push_back(value);
    }

    fn take_tls13_ticket(&self, server_name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.tls13.lock().get_mut(server_name)?.pop_back()
    }
}
