//! Readings from `/proc`.

use std::fs;
use std::process;
use std::time::Duration;

use crate::Failure;

/// Milliseconds of one clock tick in `/proc/PID/stat`: Linux shows 100 ticks a second to programs.
const TICK_MS: u64 = 10;

/// User and system CPU time of all threads a process has and had, in steps of 10 ms.
pub fn cpu_time(pid: u32) -> Result<Duration, Failure> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in brackets may hold anything; fields are counted behind its end: state is the first, utime and stime follow as 12th, 13th.
    let (_, fields) = stat.rsplit_once(") ").ok_or("no process name in /proc/PID/stat")?;
    let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>()?;
    Ok(Duration::from_millis(ticks * TICK_MS))
}

/// CPU time of this process.
pub fn own_cpu_time() -> Result<Duration, Failure> {
    cpu_time(process::id())
}

/// Resident memory in bytes. The kernel's own memory for sockets is not in it.
pub fn resident_bytes(pid: u32) -> Result<u64, Failure> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok().and_then(|text| kib_of(&text, "Rss:"));
    let kib = match rollup {
        Some(kib) => kib,
        None => kib_of(&fs::read_to_string(format!("/proc/{pid}/status"))?, "VmRSS:").ok_or("no VmRSS in /proc/PID/status")?,
    };
    Ok(kib * 1024)
}

/// User memory in bytes that no file is behind: what a process took for itself.
pub fn user_bytes(pid: u32) -> Result<u64, Failure> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(kib_of(&status, "RssAnon:").ok_or("no RssAnon in /proc/PID/status")? * 1024)
}

/// How many files this process, and so its children, may open.
pub fn open_files_max() -> Result<usize, Failure> {
    let limits = fs::read_to_string("/proc/self/limits")?;
    let line = limits.lines().find(|line| line.starts_with("Max open files")).ok_or("no open files in /proc/self/limits")?;
    match line.split_whitespace().nth(3) {
        Some("unlimited") => Ok(usize::MAX),
        Some(soft) => Ok(soft.parse()?),
        None => Err("no soft limit in /proc/self/limits".into()),
    }
}

fn kib_of(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}
