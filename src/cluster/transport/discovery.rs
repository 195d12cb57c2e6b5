//! Finding nodes by a DNS name: each of its addresses is a node at the cluster port, or will be. Who they are, they say in their hello.
//!
//! An answer that has no address but those at which this node met itself before says that it is the only one. No answer, an answer without
//! an address and an address where nobody speaks yet say nothing: whoever founds waits then.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::cluster::settings::Dns;

use super::{Transport, seed};

/// Until this node belongs to a cluster, and after a failure: names of pods come up one by one.
const RETRY: Duration = Duration::from_secs(1);
/// The same, in the first moments of this process: nobody serves before the nodes have found each other.
const RETRY_AT_START: Duration = Duration::from_millis(100);
const START: Duration = Duration::from_secs(3);
/// More addresses of one name are not tried.
const ADDRESSES_MAX: usize = 256;

/// Resolves the name again and again; addresses that are there no more are not tried any more.
pub(super) async fn run(transport: Arc<Transport>, dns: Dns) {
    let cancel = transport.cancel.clone();
    let mut watched: BTreeMap<SocketAddr, Watch> = BTreeMap::new();
    let begun = Instant::now();
    loop {
        let resolved = tokio::select! {
            () = cancel.cancelled() => return,
            resolved = resolve(&dns) => resolved,
        };
        let failed = resolved.is_err();
        match resolved {
            Ok(addresses) => {
                transport.named_alone.store(is_only(&watched, &addresses), Ordering::Release);
                follow(&transport, &mut watched, &addresses);
            }
            Err(error) => {
                transport.named_alone.store(false, Ordering::Release);
                if transport.refusals.due(&format!("{} {error}", dns.name)) {
                    tracing::warn!(name = dns.name, %error, "the nodes of the cluster cannot be resolved");
                }
            }
        }
        let settled = !failed && transport.cluster_id.read().is_some();
        let retry = if begun.elapsed() < START { RETRY_AT_START } else { RETRY };
        let pause = if settled { dns.interval } else { retry.min(dns.interval) };
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

/// An address of the name that is looked at.
struct Watch {
    cancel: CancellationToken,
    /// Whoever listens there is this node.
    is_own: Arc<AtomicBool>,
}

/// Whether each of these addresses, and there are some, was found to be this node before they were answered.
fn is_only(watched: &BTreeMap<SocketAddr, Watch>, addresses: &BTreeSet<SocketAddr>) -> bool {
    let is_own = |address| watched.get(address).is_some_and(|watch| watch.is_own.load(Ordering::Acquire));
    !addresses.is_empty() && addresses.iter().all(is_own)
}

fn follow(transport: &Arc<Transport>, watched: &mut BTreeMap<SocketAddr, Watch>, addresses: &BTreeSet<SocketAddr>) {
    watched.retain(|address, watch| {
        let stays = addresses.contains(address);
        if !stays {
            tracing::info!(%address, "the name of the cluster has an address no more");
            watch.cancel.cancel();
        }
        stays
    });
    for address in addresses {
        if watched.contains_key(address) {
            continue;
        }
        tracing::info!(%address, "the name of the cluster has an address");
        let (cancel, is_own) = (transport.cancel.child_token(), Arc::<AtomicBool>::default());
        watched.insert(*address, Watch { cancel: cancel.clone(), is_own: Arc::clone(&is_own) });
        let (transport, seed) = (Arc::clone(transport), address.to_string());
        tokio::spawn(async move {
            tokio::select! {
                () = cancel.cancelled() => {}
                () = seed::look(&transport, &seed) => is_own.store(true, Ordering::Release),
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_alone_only_where_all_addresses_were_its_own_before() {
        let [own, other, unknown]: [SocketAddr; 3] =
            ["10.0.0.1:7000", "10.0.0.2:7000", "10.0.0.3:7000"].map(|text| text.parse().unwrap());
        let watch = |is_own| Watch { cancel: CancellationToken::new(), is_own: Arc::new(AtomicBool::new(is_own)) };
        let watched = [(own, watch(true)), (other, watch(false))].into();
        let cases: [(&[SocketAddr], bool); 6] = [
            (&[], false),
            (&[own], true),
            (&[other], false),
            (&[unknown], false),
            (&[own, other], false),
            (&[own, unknown], false),
        ];
        for (addresses, expected) in cases {
            assert_eq!(is_only(&watched, &addresses.iter().copied().collect()), expected, "{addresses:?}");
        }
        assert!(!is_only(&BTreeMap::new(), &[own].into()), "the first answer says nothing: nobody was met there yet");
    }
}
