//! A pod that is cut off from the others while clients reach it: each has a second network, of its own, that clients come by.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use troupemq::mqtt::{QoS, ReasonCode};

use super::pods::{MQTT_PORT, Pods, probe};
use crate::harness::client::{Client, ConnectError, Options};
use crate::harness::permit::Weight;
use crate::harness::{SOON, wait};

/// `cluster/close-clients-without-majority-after`, and time for a busy machine.
const CLOSED: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_pod_without_the_others_is_not_ready_lets_go_of_its_clients_and_heals_by_itself() {
    let test = "a_pod_without_the_others_is_not_ready_lets_go_of_its_clients_and_heals_by_itself";
    let Some(pods) = Pods::ready(test, "cut", Weight::Cluster, 3) else { return };
    // The second network comes after the name is resolved by the first, and no two pods share one.
    let own = OwnNetwork::join(&pods, 0);
    let front: SocketAddr = (own.address, MQTT_PORT).into();
    let mut inside = Client::connect(front, &Options::v5("inside").persistent()).await;
    inside.subscribe("cut/#", QoS::AtLeastOnce).await;
    let mut outside = Client::connect(pods.mqtt(1), &Options::v5("outside")).await;
    outside.publish("cut/1", b"before", QoS::AtLeastOnce).await;
    assert_eq!(inside.text().await, "before");

    let cut = Instant::now();
    pods.engine.docker(&["network", "disconnect", &pods.name, &pods.pod(0)]);
    let ready = || probe(own.address, "readiness").map(|(status, _)| status == 200);
    wait::until("the pod is not ready", SOON, || (ready() == Some(false)).then_some(()));
    println!("not ready {:?} after the cut", cut.elapsed());
    assert_eq!(probe(own.address, "liveness").map(|(status, _)| status), Some(200), "it is not to be restarted for that");
    let refusal = wait::until_async("CONNECT is refused", SOON, async || {
        match Client::try_connect(front, &Options::v5("too-late")).await {
            Err(ConnectError::Refused(connack)) => Some(connack.reason_code),
            _ => None,
        }
    });
    assert_eq!(refusal.await, ReasonCode::ServerUnavailable);
    // The others go on, and take in what they can reach.
    wait::until_async("a message is acknowledged by the others", CLOSED, async || {
        let mut client = Client::try_connect(pods.mqtt(1), &Options::v5("others")).await.ok()?;
        let message = crate::harness::client::publish("cut/2", b"meanwhile", QoS::AtLeastOnce);
        (client.try_publish(message).await == Ok(ReasonCode::Success)).then_some(())
    })
    .await;
    assert_eq!(
        tokio::time::timeout(CLOSED, inside.closed()).await.expect("its clients are closed"),
        Some(ReasonCode::ServerBusy)
    );
    println!("clients closed {:?} after the cut", cut.elapsed());

    // Back, at another address: what a pod has after its network was gone.
    let healed = Instant::now();
    let address = pods.unused_address();
    let (text, pod) = (address.to_string(), pods.pod(0));
    pods.engine.docker(&["network", "connect", "--ip", &text, "--alias", &pods.name, &pods.name, &pod]);
    pods.places.lock().expect("no panic").insert(0, address);
    pods.wait_ready(0..3);
    (0..3).for_each(|index| pods.wait_members(index, 3));
    println!("whole again {:?} after the cut was healed", healed.elapsed());
    let mut inside = Client::connect(front, &Options::v5("inside").persistent()).await;
    assert!(inside.session_present());
    assert_eq!(inside.text().await, "meanwhile");
    inside.nothing().await;
    drop(own);
}

/// A network that one pod alone is in.
struct OwnNetwork<'a> {
    pods: &'a Pods,
    name: String,
    pod: String,
    address: Ipv4Addr,
}

impl<'a> OwnNetwork<'a> {
    fn join(pods: &'a Pods, index: usize) -> Self {
        let (name, pod) = (format!("{}-front-{index}", pods.name), pods.pod(index));
        pods.engine.network(&name);
        pods.engine.docker(&["network", "connect", &name, &pod]);
        let address = pods.engine.address(&pod, &name);
        Self { pods, name, pod, address }
    }
}

impl Drop for OwnNetwork<'_> {
    fn drop(&mut self) {
        _ = self.pods.engine.try_docker(&["network", "disconnect", "--force", &self.name, &self.pod]);
        _ = self.pods.engine.try_docker(&["network", "rm", &self.name]);
    }
}
