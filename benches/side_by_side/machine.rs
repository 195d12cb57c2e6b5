//! Where the figures were taken.

use std::fs;
use std::thread;

/// One line: processor, cores, kernel, load.
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub kernel: String,
    /// Mean number of runnable threads of the minute before the run.
    pub load_average: String,
}

impl Machine {
    pub fn read() -> Self {
        let first_word = |text: String| text.split_whitespace().next().unwrap_or_default().to_owned();
        Self {
            processor: processor(),
            cores: thread::available_parallelism().map_or(0, usize::from),
            kernel: first_word(fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default()),
            load_average: first_word(fs::read_to_string("/proc/loadavg").unwrap_or_default()),
        }
    }
}

fn processor() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find(|line| line.starts_with("model name")).and_then(|line| line.split_once(": "));
    name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned())
}
