//! Finding nodes by a DNS name: each of its addresses is a node at the cluster port, or will be. Who they are, they say in their hello.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::cluster::settings::Dns;

use super::{Transport, seed};

/// Until this node belongs to a cluster, and after a failure: names of pods come up one by one.
const RETRY: Duration = Duration::from_secs(1);
/// More addresses of one name are not tried.
const ADDRESSES_MAX: usize = 256;

/// Resolves the name again and again; addresses that are there no more are not tried any more.
pub(super) async fn run(transport: Arc<Transport>, dns: Dns) {
    let cancel = transport.cancel.clone();
    let mut watched: BTreeMap<SocketAddr, CancellationToken> = BTreeMap::new();
    loop {
        let resolved = tokio::select! {
            () = cancel.cancelled() => return,
            resolved = resolve(&dns) => resolved,
        };
        let failed = resolved.is_err();
        match resolved {
            Ok(addresses) => follow(&transport, &mut watched, &addresses),
            Err(error) => {
                if transport.refusals.due(&format!("{} {error}", dns.name)) {
                    tracing::warn!(name = dns.name, %error, "the nodes of the cluster cannot be resolved");
                }
            }
        }
        let pause = if failed || transport.cluster_id.read().is_none() { RETRY.min(dns.interval) } else { dns.interval };
        tokio::select! {
            () = cancel.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn resolve(dns: &Dns) -> io::Result<BTreeSet<SocketAddr>> {
    let looked_up = timeout(dns.timeout, lookup_host((dns.name.as_str(), dns.port))).await;
    Ok(looked_up.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??.take(ADDRESSES_MAX).collect())
}

fn follow(transport: &Arc<Transport>, watched: &mut BTreeMap<SocketAddr, CancellationToken>, addresses: &BTreeSet<SocketAddr>) {
    watched.retain(|address, watch| {
        let stays = addresses.contains(address);
        if !stays {
            tracing::info!(%address, "the name of the cluster has an address no more");
            watch.cancel();
        }
        stays
    });
    for address in addresses {
        if watched.contains_key(address) {
            continue;
        }
        tracing::info!(%address, "the name of the cluster has an address");
        let watch = transport.cancel.child_token();
        watched.insert(*address, watch.clone());
        let (transport, seed) = (Arc::clone(transport), address.to_string());
        tokio::spawn(async move {
            tokio::select! {
                () = watch.cancelled() => {}
                () = seed::look(&transport, &seed) => {}
            }
        });
    }
}
