//! Power that fails: what was written and not flushed is gone, as after a cut of the machine's power, and not after a mere end of the process.
//!
//! Each node's data is on a file system of its own, which is shut down without a flush of its journal (what file system tests call
//! "going down"). Root only; what is left out says so.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use tokio::task::JoinHandle;
use troupemq::mqtt::QoS;

use super::disks::{MIB, Mount, TOOL, leave_out};
use crate::harness::client::{Client, Options, publish};
use crate::harness::node::Node;
use crate::harness::permit::Weight;
use crate::harness::trio::Trio;
use crate::harness::{SOON, script, wait};

/// Acknowledged before the power fails.
const ACKNOWLEDGED_MIN: usize = 200;
/// `FS_IOC_SHUTDOWN` with "no flush of the log".
const GO_DOWN: &str = "import fcntl,os,struct,sys;fcntl.ioctl(os.open(sys.argv[1],os.O_RDONLY),0x8004587d,struct.pack('I',2))";

/// The disk of one machine.
struct Disk {
    image: PathBuf,
    at: PathBuf,
    mounted: Option<Mount>,
}

impl Disk {
    fn new(node: &Node) -> Option<Self> {
        let at = node.data();
        let image = at.with_file_name("image");
        fs::File::create(&image).unwrap().set_len(256 * MIB as u64).unwrap();
        let made = script::run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image), TOOL);
        if made.code != Some(0) {
            leave_out(&format!("mkfs.ext4: {}", made.stderr.trim()));
            return None;
        }
        let mut disk = Self { image, at, mounted: None };
        disk.mount();
        disk.mounted.is_some().then_some(disk)
    }

    fn mount(&mut self) {
        self.mounted = Mount::new(&["-o", "loop", &self.image.to_string_lossy()], &self.at);
    }

    /// A file that is written and not flushed: the proof that such writes go.
    fn unflushed(&self) -> PathBuf {
        self.at.join("written-and-not-flushed")
    }

    /// From here on nothing reaches the disk. False, with the reason printed, where that cannot be had.
    fn power_fails(&self) -> bool {
        fs::write(self.unflushed(), b"here").unwrap();
        let finished = script::run(Command::new("python3").args(["-c", GO_DOWN]).arg(&self.at), TOOL);
        if finished.code != Some(0) {
            leave_out(&format!("the file system cannot be shut down: {}", finished.stderr.trim()));
        }
        finished.code == Some(0)
    }

    /// For a node whose process has ended.
    fn power_is_back(&mut self) {
        drop(self.mounted.take());
        self.mount();
        assert!(self.mounted.is_some(), "it was mounted before");
        assert!(fs::read(self.unflushed()).unwrap_or_default().is_empty(), "the disk kept what was not flushed");
    }
}

fn disks(trio: &Trio) -> Option<Vec<Disk>> {
    trio.nodes.iter().map(Disk::new).collect()
}

fn holder() -> Options {
    Options::v5("holder").persistent()
}

async fn hold(trio: &Trio) {
    let mut client = Client::connect(trio.mqtt(0), &holder()).await;
    client.subscribe("held/#", QoS::ExactlyOnce).await;
    client.disconnect().await;
}

/// Publishes numbers until the connection ends; returns how many were acknowledged.
fn publishing(trio: &Trio, node: usize, qos: QoS) -> (JoinHandle<usize>, tokio::sync::watch::Receiver<usize>) {
    let address = trio.mqtt(node);
    let (tell, told) = tokio::sync::watch::channel(0);
    let task = tokio::spawn(async move {
        let mut client = Client::connect(address, &Options::v5(&format!("publisher-{}", qos as u8))).await;
        let mut acknowledged = 0;
        let topic = format!("held/{}", qos as u8);
        loop {
            let mut message = publish(&topic, acknowledged.to_string().as_bytes(), qos);
            message.retain = true;
            let Ok(code) = client.try_publish(message).await else { break };
            if code.is_error() {
                break;
            }
            acknowledged += 1;
            _ = tell.send(acknowledged);
        }
        acknowledged
    });
    (task, told)
}

async fn enough(told: &mut [tokio::sync::watch::Receiver<usize>]) {
    for told in told {
        tokio::time::timeout(4 * SOON, told.wait_for(|count| *count >= ACKNOWLEDGED_MIN)).await.expect("in time").unwrap();
    }
}

/// All that was acknowledged is there, in order; of each topic perhaps one message more, that was not acknowledged any more.
async fn holds(address: std::net::SocketAddr, acknowledged: [(QoS, usize); 2]) {
    let mut client = Client::connect(address, &holder()).await;
    assert!(client.session_present());
    let mut counts = [0, 0];
    while let Ok(message) = client.try_message(std::time::Duration::from_secs(3)).await {
        let at = usize::from(message.topic.as_bytes().ends_with(b"2"));
        assert_eq!(&*message.payload, counts[at].to_string().as_bytes(), "{}", message.topic);
        counts[at] += 1;
    }
    client.disconnect().await;
    for ((qos, acknowledged), count) in acknowledged.into_iter().zip(counts) {
        println!("{qos:?}: {acknowledged} acknowledged, {count} there");
        assert!(count == acknowledged || count == acknowledged + 1, "{qos:?}: {acknowledged} acknowledged, {count} there");
    }
}

/// The nodes have the same retained messages, none older than the last that was acknowledged.
async fn agree(addresses: &[std::net::SocketAddr], acknowledged: [(QoS, usize); 2]) {
    for (qos, acknowledged) in acknowledged {
        let topic = format!("held/{}", qos as u8);
        let mut found = Vec::new();
        for address in addresses {
            let mut client = Client::connect(*address, &Options::v5("looks")).await;
            client.subscribe(&topic, QoS::AtLeastOnce).await;
            found.push(client.text().await.parse::<usize>().unwrap());
            client.disconnect().await;
        }
        assert!(found.iter().all(|number| *number == found[0]) && found[0] + 1 >= acknowledged, "{found:?}, {acknowledged}");
    }
}

/// `../shared/cases.md`, row 7, a: everywhere at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_power_of_all_nodes_fails_at_once_all_that_was_acknowledged_is_there() {
    let mut trio = Trio::new(Weight::Whole, |_| {});
    let Some(mut disks) = disks(&trio) else { return };
    trio.start_all();
    hold(&trio).await;
    let (once, once_told) = publishing(&trio, 0, QoS::AtLeastOnce);
    let (exactly, exactly_told) = publishing(&trio, 1, QoS::ExactlyOnce);
    enough(&mut [once_told, exactly_told]).await;
    if !disks.iter().all(Disk::power_fails) {
        return;
    }
    trio.nodes.iter_mut().for_each(Node::kill);
    let acknowledged = [(QoS::AtLeastOnce, once.await.unwrap()), (QoS::ExactlyOnce, exactly.await.unwrap())];
    disks.iter_mut().for_each(Disk::power_is_back);
    trio.start_all();
    agree(&trio.all_mqtt(), acknowledged).await;
    holds(trio.mqtt(2), acknowledged).await;
    trio.nodes.iter_mut().for_each(Node::kill);
}

/// `../shared/cases.md`, row 7, b: the two that acknowledged, without the one that was paused, are one whose power failed and one that is away
/// then. What was acknowledged is on the disk whose power failed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_two_nodes_acknowledged_is_on_the_disk_of_the_one_whose_power_fails() {
    let mut trio = Trio::new(Weight::Whole, |_| {});
    let Some(mut disks) = disks(&trio) else { return };
    trio.start_all();
    hold(&trio).await;
    trio.nodes[2].signal(Signal::STOP);
    let (once, once_told) = publishing(&trio, 0, QoS::AtLeastOnce);
    let (exactly, exactly_told) = publishing(&trio, 0, QoS::ExactlyOnce);
    enough(&mut [once_told, exactly_told]).await;
    let power_failed = disks[1].power_fails();
    trio.nodes[1].kill();
    trio.nodes[0].kill();
    if !power_failed {
        return;
    }
    let acknowledged = [(QoS::AtLeastOnce, once.await.unwrap()), (QoS::ExactlyOnce, exactly.await.unwrap())];
    disks[1].power_is_back();
    trio.nodes[1].launch();
    trio.nodes[2].signal(Signal::CONT);
    trio.nodes[1].wait_ready();
    wait::until("two nodes serve", SOON, || trio.nodes[1..].iter().all(Node::is_up).then_some(()));
    agree(&trio.all_mqtt()[1..], acknowledged).await;
    holds(trio.mqtt(1), acknowledged).await;
    trio.nodes[1..].iter_mut().for_each(Node::kill);
}
