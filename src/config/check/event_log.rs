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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_the_elements_or_else_the_environments_or_else_nobodys() {
        let folder = |element: &str, variable: Option<&str>| {
            let xml = format!(
                "<hivemq><listeners><tcp-listener><port>1883</port><bind-address>127.0.0.1</bind-address></tcp-listener></listeners>\
                 <event-log>{element}</event-log></hivemq>"
            );
            let env = |name: &str| variable.filter(|_| name == FOLDER_VARIABLE).map(ToOwned::to_owned);
            let loaded = crate::config::from_bytes(xml.as_bytes(), "/etc/troupemq/config.xml", &env).unwrap();
            loaded.settings.event_log.folder.map(|folder| folder.display().to_string())
        };
        let named = "<folder>/var/log/mqtt</folder>";
        assert_eq!(folder(named, None).as_deref(), Some("/var/log/mqtt"));
        assert_eq!(folder(named, Some("/log")).as_deref(), Some("/var/log/mqtt"));
        assert_eq!(folder("", Some("/log")).as_deref(), Some("/log"));
        assert_eq!(folder("", None), None);
    }
}
