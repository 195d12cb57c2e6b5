//! What stands in for a Service: one address in front of the pods. New connections go to the pod with the fewest among those whose readiness
//! probe succeeds; connections that are there stay where they are.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use super::pods::{MQTT_PORT, Places, probe};

/// The kubelet's numbers, made smaller to fit a test: period and failures in a row.
const PERIOD: Duration = Duration::from_millis(500);
const FAILURES: u32 = 2;
const CONNECT: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Endpoints {
    /// Failures in a row of the pods that were ready once, by address.
    known: BTreeMap<Ipv4Addr, u32>,
    open: BTreeMap<Ipv4Addr, usize>,
}

impl Endpoints {
    /// The ready pod with the fewest connections, the one that was started last where there are several; counts one more.
    fn choose(&mut self) -> Option<Ipv4Addr> {
        let ready = self.known.iter().filter(|(_, failures)| **failures < FAILURES).map(|(address, _)| *address);
        let chosen = ready.min_by_key(|address| (self.open.get(address).copied().unwrap_or(0), Reverse(*address)))?;
        *self.open.entry(chosen).or_default() += 1;
        Some(chosen)
    }

    fn closed(&mut self, address: Ipv4Addr) {
        if let Some(open) = self.open.get_mut(&address) {
            *open = open.saturating_sub(1);
        }
    }
}

pub struct Service {
    pub address: SocketAddr,
    endpoints: Arc<Mutex<Endpoints>>,
    /// Its end ends the threads.
    _alive: watch::Sender<()>,
}

impl Service {
    pub fn start(places: &Places) -> Self {
        let endpoints = Arc::new(Mutex::new(Endpoints::default()));
        let (alive, mut told) = watch::channel(());
        let (places, probed, probing) = (Arc::clone(places), Arc::clone(&endpoints), told.clone());
        std::thread::spawn(move || {
            // An error: there is no sender any more.
            while probing.has_changed().is_ok() {
                look(&places, &probed);
                std::thread::sleep(PERIOD);
            }
        });
        let (tell, address) = mpsc::channel();
        let served = Arc::clone(&endpoints);
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
                tell.send(listener.local_addr().expect("its address")).expect("somebody waits");
                tokio::select! {
                    () = serve(listener, served) => {}
                    _ = told.changed() => {}
                }
            });
        });
        Self { address: address.recv().expect("the service listens"), endpoints, _alive: alive }
    }

    /// Whether new connections may go to that pod.
    pub fn sends_to(&self, pod: Ipv4Addr) -> bool {
        self.endpoints.lock().expect("no panic").known.get(&pod).is_some_and(|failures| *failures < FAILURES)
    }
}

/// One round of probes.
fn look(places: &Places, endpoints: &Mutex<Endpoints>) {
    let pods: Vec<Ipv4Addr> = places.lock().expect("no panic").values().copied().collect();
    for address in &pods {
        let ready = probe(*address, "readiness").is_some_and(|(status, _)| status == 200);
        let mut endpoints = endpoints.lock().expect("no panic");
        let failures = match (ready, endpoints.known.get(address)) {
            (true, _) => 0,
            (false, Some(failures)) => failures + 1,
            (false, None) => continue,
        };
        endpoints.known.insert(*address, failures);
    }
    endpoints.lock().expect("no panic").known.retain(|address, _| pods.contains(address));
}

async fn serve(listener: TcpListener, endpoints: Arc<Mutex<Endpoints>>) {
    while let Ok((mut client, _)) = listener.accept().await {
        let endpoints = Arc::clone(&endpoints);
        tokio::spawn(async move {
            // Without one the client finds its connection closed, as behind a Service without endpoints.
            let Some(address) = endpoints.lock().expect("no panic").choose() else { return };
            let connecting = tokio::time::timeout(CONNECT, TcpStream::connect((address, MQTT_PORT)));
            if let Ok(Ok(mut pod)) = connecting.await {
                _ = client.set_nodelay(true);
                _ = pod.set_nodelay(true);
                _ = copy_bidirectional(&mut client, &mut pod).await;
            }
            endpoints.lock().expect("no panic").closed(address);
        });
    }
}
