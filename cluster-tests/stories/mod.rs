//! The examples of `config/examples`, played with real clients: each test starts a node from the example's own files, plays its story and
//! prints what the analyst sees (`-- --nocapture`). `fail_over` plays what README tells.

mod fail_over;
mod fleet;
mod kit;
mod machinery;
mod smart_car;
mod smart_device;

use std::process::Command;
use std::time::Duration;

use crate::harness::program;
use crate::harness::script::run;

const EXAMPLES: [&str; 4] = ["connected-machinery", "fleet", "smart-car", "smart-device"];

/// With the files that are to be made first, by `certificate.sh` or otherwise.
#[test]
fn every_example_passes_the_check_without_a_word() {
    let there = std::fs::read_dir(kit::examples()).expect("examples").filter_map(|entry| {
        let entry = entry.expect("an entry");
        entry.path().is_dir().then(|| entry.file_name().into_string().expect("a name"))
    });
    let mut there: Vec<String> = there.collect();
    there.sort();
    assert_eq!(there, EXAMPLES);
    for name in EXAMPLES {
        let files = kit::Files::copy(name);
        let config = files.conf().join("config.xml");
        let finished = run(Command::new(program()).args(["config", "check"]).arg(&config), Duration::from_secs(30));
        assert_eq!((finished.code, finished.stderr.as_str()), (Some(0), ""), "{name}");
        for in_force in ["credentials.xml", "$share/"] {
            assert!(finished.stdout.contains(in_force), "{name}: no {in_force} in {}", finished.stdout);
        }
        assert!(files.path().join("README.md").is_file(), "{name} tells its story");
    }
}
