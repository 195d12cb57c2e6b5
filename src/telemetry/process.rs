//! What the operating system says of this process, under the names every Prometheus client library uses. Linux only: elsewhere the
//! series stay at 0.

use prometheus::{IntGauge, Registry};

use super::system::bytes_of;

/// Memory and open files of the process.
#[derive(Debug)]
pub(super) struct ProcessMetrics {
    resident_memory_bytes: IntGauge,
    open_fds: IntGauge,
}

impl ProcessMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let gauge = |name, help| {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        Ok(Self {
            resident_memory_bytes: gauge("process_resident_memory_bytes", "Resident memory size in bytes.")?,
            open_fds: gauge("process_open_fds", "Number of open file descriptors.")?,
        })
    }

    /// Reads `/proc/self`; what cannot be read keeps its last value.
    pub(super) fn sample(&self) {
        if let Some(bytes) =
            std::fs::read_to_string("/proc/self/status").ok().as_deref().and_then(|status| bytes_of(status, "VmRSS:"))
        {
            self.resident_memory_bytes.set(bytes);
        }
        if let Ok(entries) = std::fs::read_dir("/proc/self/fd") {
            self.open_fds.set(i64::try_from(entries.count()).unwrap_or(i64::MAX));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_from_the_status_text() {
        let resident_bytes = |status: &str| bytes_of(status, "VmRSS:");
        assert_eq!(resident_bytes("Name:\tx\nVmRSS:\t    2048 kB\nThreads:\t1\n"), Some(2_097_152));
        assert_eq!(resident_bytes("Name:\tx\n"), None);
        assert_eq!(resident_bytes("VmRSS:\tmuch\n"), None);
    }
}
