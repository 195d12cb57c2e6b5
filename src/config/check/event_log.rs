//! `<event-log>`, an own element; its folder is HiveMQ's log folder (spec/hivemq.md 1.1).

use std::path::PathBuf;

use super::view::View;
use crate::config::settings::EventLogSettings;

/// Environment variable of HiveMQ's image.
const FOLDER_VARIABLE: &str = "HIVEMQ_LOG_FOLDER";

pub(super) fn read(root: &View<'_>, env: &dyn Fn(&str) -> Option<String>) -> EventLogSettings {
    let log = root.at("event-log");
    EventLogSettings {
        enabled: log.flag("enabled"),
        folder: log.at("folder").file().or_else(|| env(FOLDER_VARIABLE).map(PathBuf::from)),
        file_bytes_max: log.u64_or_max("max-file-size"),
        files_max: log.bytes("max-files").unwrap_or(1),
    }
}
