//! Network namespaces with one TUN device each. Their names begin with `tmq` and the process id of the test run, so that a later run finds
//! what one that was killed left behind.

use std::fs;
use std::net::Ipv4Addr;
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tun_rs::{DeviceBuilder, Layer, SyncDevice};

use super::{CLIENTS, ENDS, NODES};

const PREFIX: &str = "tmq";
/// Addresses of one network: a block of 16.
const BLOCK: u32 = 16;

/// Why there are no namespaces here; asked once.
pub fn permitted() -> Result<(), String> {
    static ANSWER: OnceLock<Result<(), String>> = OnceLock::new();
    ANSWER
        .get_or_init(|| {
            if std::env::var_os("TROUPEMQ_SKIP_NAMESPACES").is_some() {
                return Err("TROUPEMQ_SKIP_NAMESPACES is set".to_owned());
            }
            fs::OpenOptions::new()
                .read(true)
                .write(true)
                .open("/dev/net/tun")
                .map_err(|error| format!("/dev/net/tun: {error}"))?;
            remove_abandoned();
            let probe = format!("{PREFIX}{}-probe", std::process::id());
            ip(&["netns", "add", &probe])?;
            let entered = Command::new("nsenter").arg(format!("--net=/run/netns/{probe}")).arg("true").output();
            _ = ip(&["netns", "del", &probe]);
            match entered {
                Ok(output) if output.status.success() => Ok(()),
                Ok(output) => Err(format!("nsenter: {}", first_line(&output))),
                Err(error) => Err(format!("nsenter: {error}")),
            }
        })
        .clone()
}

/// Addresses of the ends of a network, counted from 1 in its block.
pub struct Address;

impl Address {
    pub fn of(block: Ipv4Addr, end: usize) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(block) + 1 + u32::try_from(end).expect("a small number"))
    }

    /// The end that an address in the block belongs to.
    pub fn end(address: Ipv4Addr) -> Option<usize> {
        let end = (u32::from(address) % BLOCK).checked_sub(1)? as usize;
        (end < ENDS).then_some(end)
    }
}

/// Removed when dropped, with the processes that still live in them.
pub struct Namespaces {
    slot: usize,
    /// The first address of the network.
    pub block: Ipv4Addr,
}

impl Namespaces {
    /// The namespaces, and the devices in the order of the ends.
    pub fn create() -> (Self, Vec<SyncDevice>) {
        static SLOTS: AtomicUsize = AtomicUsize::new(0);
        let slot = SLOTS.fetch_add(1, Ordering::Relaxed);
        let namespaces = Self { slot, block: free_block(slot) };
        let devices = (0..ENDS).map(|end| namespaces.end(end)).collect();
        (namespaces, devices)
    }

    pub fn name(&self, node: usize) -> String {
        self.name_of(node)
    }

    fn name_of(&self, node: usize) -> String {
        format!("{PREFIX}{}-{}-{node}", std::process::id(), self.slot)
    }

    /// Makes an end: its device, and its namespace where it is a node.
    fn end(&self, end: usize) -> SyncDevice {
        let link = format!("tq{}.{}.{end}", std::process::id(), self.slot);
        let device = DeviceBuilder::new().name(&link).layer(Layer::L3).enable(false).build_sync().expect("a TUN device");
        device.set_nonblocking(true).expect("a file that does not block");
        let address = format!("{}/28", Address::of(self.block, end));
        let run = |arguments: &[&str]| ip(arguments).unwrap_or_else(|error| panic!("ip {}: {error}", arguments.join(" ")));
        if end == CLIENTS {
            run(&["addr", "add", &address, "dev", &link]);
            run(&["link", "set", &link, "up"]);
            return device;
        }
        let name = self.name_of(end);
        run(&["netns", "add", &name]);
        run(&["link", "set", &link, "netns", &name]);
        run(&["-n", &name, "addr", "add", &address, "dev", &link]);
        run(&["-n", &name, "link", "set", &link, "up"]);
        run(&["-n", &name, "link", "set", "lo", "up"]);
        device
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        (0..NODES).for_each(|node| remove(&self.name_of(node)));
    }
}

/// A block of addresses that this machine has no route into yet.
fn free_block(slot: usize) -> Ipv4Addr {
    let first = std::process::id() as usize * 31 + slot;
    for candidate in first..first + 4096 {
        let number = u32::try_from(candidate % (32 * 4096)).expect("below 2^17");
        let block = Ipv4Addr::from(u32::from(Ipv4Addr::new(10, 192, 0, 0)) + number * BLOCK);
        let routes = ip(&["-4", "route", "show", "root", &format!("{block}/28")]).expect("ip tells its routes");
        let within = ip(&["-4", "route", "show", "exact", &format!("{block}/28")]).expect("ip tells its routes");
        if routes.is_empty() && within.is_empty() {
            return block;
        }
    }
    panic!("no free block of addresses in 10.192.0.0/11");
}

/// Removes the namespaces of test runs that are no more.
fn remove_abandoned() {
    let Ok(entries) = fs::read_dir("/run/netns") else { return };
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((pid, _)) = name.strip_prefix(PREFIX).and_then(|rest| rest.split_once('-')) else { continue };
        if pid.parse::<u32>().is_ok() && !fs::exists(format!("/proc/{pid}")).unwrap_or(true) {
            remove(&name);
        }
    }
}

/// Ends what lives in a namespace of ours, and removes it.
fn remove(name: &str) {
    for pid in ip(&["netns", "pids", name]).unwrap_or_default().lines() {
        let pid = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
    _ = ip(&["netns", "del", name]);
}

fn ip(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("ip").args(arguments).output().map_err(|error| format!("ip: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(first_line(&output))
}

fn first_line(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("no word of why").to_owned()
}
